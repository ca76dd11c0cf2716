"""The rules of ``tasks/methods`` that give layers, chances and words, written a second time in plain Python.

Nothing here comes from ``tasks``. Layers count from 0; functions and arguments are called as those that they check.
"""

from __future__ import annotations

import hashlib
import math
import random
import string
from collections.abc import Sequence
from fractions import Fraction

from numpy import ndarray

FUNCTION_WORDS = {"the", "a", "no", "not", "i", "don", "t", "s", "won", "very", "and", "which"}
"""Those among the words of the cases that carry grammar; the product's whole list is compared with the reference's."""


# --- which layer copies which: Jiao et al. 2019, arXiv:1909.10351; Sun et al. 2019, arXiv:1908.09355 ---


def with_attention(hidden: list[int]) -> list[list[int]]:
    """Return hidden states, and the attention layers below them: the embeddings have none."""
    return [hidden, [state - 1 for state in hidden if state > 0]]


def uniform(students: int, teachers: int) -> list[list[int]]:
    """Hidden state m copies floor(m · N / M)."""
    return with_attention([int(Fraction(m * teachers, students)) for m in range(students + 1)])


def divisible(students: int, teachers: int) -> list[list[int]]:
    """Every k-th layer, k = N / M."""
    return with_attention(list(range(0, teachers + 1, teachers // students)))


def last(students: int, teachers: int) -> list[list[int]]:
    """The embeddings, and the last M layers."""
    return with_attention([0] + [teachers - students + m for m in range(1, students + 1)])


def skip(students: int, teachers: int) -> list[list[int]]:
    """As uniform, without the student's last layer."""
    return [part[:-1] for part in uniform(students, teachers)]


def of_kept(kept: Sequence[int]) -> list[list[int]]:
    """Every layer copies what it was."""
    return with_attention([0] + [layer + 1 for layer in kept])


def layer_map(name: str, students: int, teachers: int) -> list[list[int]]:
    """A map by its name."""
    return {"uniform": uniform, "divisible": divisible, "last": last, "skip": skip}[name](students, teachers)


def nearest(value: Fraction) -> int:
    """Return the nearest whole number, of two the even one."""
    return round(value)


def initial_layers(students: int, teachers: int) -> list[int]:
    """Layers at even distances, the first and the last among them (DistilBERT, arXiv:1910.01108)."""
    return [nearest(Fraction(i * (teachers - 1), max(1, students - 1))) for i in range(students)]


def patience_layers(name: str, students: int, teachers: int) -> list[int]:
    """The states that the student's states 1 to M - 1 copy."""
    return layer_map(name, students, teachers)[0][1:students]


# --- which layers go: Sajjad et al. 2020, arXiv:2004.03844; Peer et al. 2021, arXiv:2105.14839 ---


def without(layers: int, gone: Sequence[int]) -> list[int]:
    """Return the layers that stay."""
    return sorted(set(range(layers)) - set(gone))


def top(layers: int, drop: int) -> list[int]:
    """The last layers go."""
    return without(layers, range(layers - drop, layers))


def bottom(layers: int, drop: int) -> list[int]:
    """The first layers go."""
    return without(layers, range(drop))


def symmetric(layers: int, drop: int) -> list[int]:
    """Layers go from the middle; one more stays below where what stays is odd."""
    stay_above = (layers - drop) // 2
    return without(layers, range(layers - stay_above - drop, layers - stay_above))


def alternate_odd(layers: int, drop: int) -> list[int]:
    """Of layers 1, 3, 5 … by the paper's count, the last ones go."""
    return without(layers, [layer - 1 for layer in range(1, layers + 1) if layer % 2 == 1][-drop:])


def alternate_even(layers: int, drop: int) -> list[int]:
    """Of layers 2, 4, 6 … by the paper's count, the last ones go."""
    return without(layers, [layer - 1 for layer in range(1, layers + 1) if layer % 2 == 0][-drop:])


def contribution(layers: int, drop: int, contributions: Sequence[float]) -> list[int]:
    """Round by round, the layer with the highest cosine goes, of equals the later one."""
    gone: list[int] = []
    for _ in range(drop):
        left = without(layers, gone)
        gone.append(max(left, key=lambda layer: (contributions[layer], layer)))
    return without(layers, gone)


def greedy(layers: int, drop: int, kept: Sequence[int]) -> list[int]:
    """What a search kept."""
    return sorted(kept)


def kept_layers(strategy: str, layers: int, drop: int) -> list[int]:
    """A strategy by its name."""
    named = {
        "top": top,
        "bottom": bottom,
        "symmetric": symmetric,
        "alternate-odd": alternate_odd,
        "alternate-even": alternate_even,
    }
    return named[strategy](layers, drop)


def after_a_round(kept: Sequence[int]) -> list[list[int]]:
    """All that can be left when one more goes, the topmost first."""
    return [[*kept[:at], *kept[at + 1 :]] for at in range(len(kept) - 1, -1, -1)]


# --- what stays: Sanh et al. 2020, arXiv:2005.07683; Frankle, Carbin 2018, arXiv:1803.03635; Michel et al. 2019,
# arXiv:1905.10650; Hou et al. 2020, arXiv:2004.04037 ---


def most_important(importance_F: Sequence[float], count: int) -> list[int]:
    """The places of the largest numbers, of equals the first, in their old order."""
    return sorted(sorted(range(len(importance_F)), key=lambda place: (-importance_F[place], place))[:count])


def largest(scores: Sequence[Sequence[float]], count: int) -> list[list[int]]:
    """1 at the largest scores of all tensors, behind each other, and 0 elsewhere."""
    stay = set(most_important([score for one in scores for score in one], count))
    starts = [sum(len(one) for one in scores[:at]) for at in range(len(scores))]
    return [
        [int(start + place in stay) for place in range(len(one))] for start, one in zip(starts, scores, strict=True)
    ]


def masks_of(scores: Sequence[Sequence[float]], share: float, scope: str) -> list[list[int]]:
    """A share of all, or of each by itself, without the part of a weight that is left over."""
    if scope == "global":
        return largest(scores, math.floor(share * sum(len(one) for one in scores)))
    return [mask for one in scores for mask in largest([one], math.floor(share * len(one)))]


def share_above(scores: Sequence[Sequence[float]], threshold: float) -> float:
    """How many of all sigmoids are above it."""
    sigmoids = [1 / (1 + math.exp(-score)) for one in scores for score in one]
    return len([one for one in sigmoids if one > threshold]) / len(sigmoids)


def ticket(trained: Sequence[Sequence[float]], share: float) -> list[list[int]]:
    """A share of all weights by their size, rounded; what is 0 was masked before, and stays so."""
    sizes = [[abs(weight) for weight in one] for one in trained]
    masks = largest(sizes, round(share * sum(len(one) for one in trained)))
    return [[mask if size else 0 for mask, size in zip(*pair, strict=True)] for pair in zip(masks, sizes, strict=True)]


def kept_heads(
    importance_LH: Sequence[Sequence[float]], sounding_LH: Sequence[Sequence[int]], share: float, scope: str
) -> list[list[int]]:
    """Of each layer the best heads; or the best one of each layer, and then the best of all in units of their layer's
    length, as many as a share of those that are not silent."""
    lengths = [math.sqrt(sum(value**2 for value in layer)) if scope == "global" else 1.0 for layer in importance_LH]
    order = [
        sorted((-importance / lengths[at], at, head) for head, importance in enumerate(layer) if sounding_LH[at][head])
        for at, layer in enumerate(importance_LH)
    ]
    if scope == "layer":
        return [sorted(head for _, _, head in heads[: max(1, round(len(heads) * share))]) for heads in order]
    others = sorted(rest for heads in order for rest in heads[1:])
    room = max(0, round(share * sum(map(len, order))) - len(order))
    chosen = [heads[0] for heads in order] + others[:room]
    return [sorted(head for _, layer, head in chosen if layer == at) for at in range(len(order))]


def neurons_to_keep(neurons: int, share: float) -> int:
    """The nearest whole number of blocks of 32, and where there are less than two blocks, of neurons; at least one."""
    block = 32 if neurons >= 64 else 1
    return block * max(1, round(neurons * share / block))


def heads_to_keep(heads: int, share: float) -> int:
    """The nearest whole number, at least one."""
    return max(1, round(heads * share))


def flops_of_token(layers: int, heads: int, neurons: int, head_size: int) -> int:
    """A product and a sum for each weight of a layer's six matrices."""
    width = heads * head_size
    return layers * sum(2 * rows * columns for rows, columns in [(width, width)] * 4 + [(width, neurons)] * 2)


# --- replacing: Xu et al. 2020, arXiv:2002.02925; relation heads: Wang et al. 2020, arXiv:2012.15828 ---


def chance(step: int, total: int, first: float, share: float) -> float:
    """A line from ``first`` at step 0 to 1 at ``share`` of all steps, and 1 from there on."""
    end = max(1.0, share * total)
    return 1.0 if step >= end else first * (1 - step / end) + step / end


def groups(students: int, teachers: int) -> list[list[int]]:
    """The teacher's layers in as many neighbouring groups, cut where an even division falls nearest."""
    cuts = [nearest(Fraction(layer * teachers, students)) for layer in range(students + 1)]
    return [list(range(cuts[at], cuts[at + 1])) for at in range(students)]


def relation_heads(student_width: int, teacher_width: int) -> int:
    """The most heads, up to 48, that cut both widths evenly."""
    return [heads for heads in range(1, 49) if student_width % heads == 0 and teacher_width % heads == 0][-1]


# --- words: Jiao et al. 2019, arXiv:1909.10351 ---


def alphabetic(word: str) -> bool:
    """Letters from a to z, in either case, and nothing else."""
    return all(letter in string.ascii_letters for letter in word)


def replaceable(word: str) -> bool:
    """Plain letters, and no function word."""
    return alphabetic(word) and word.lower() not in FUNCTION_WORDS


def match_case(candidate: str, original: str) -> str:
    """Capitals for capitals, a capital for a capital; a single letter says nothing of the rest."""
    if len(original) > 1 and original == original.upper() != original.lower():
        return candidate.upper()
    return candidate[:1].upper() + candidate[1:] if original[:1] != original[:1].lower() else candidate


def keep_candidates(tokens: Sequence[str], original: str, limit: int) -> list[str]:
    """The first whole words that are neither the original nor each other, whatever their case."""
    kept: list[str] = []
    for token in tokens:
        known = [original.lower(), *(word.lower() for word in kept)]
        if token.isalpha() and token.lower() not in known and len(kept) < limit:
            kept.append(token)
    return kept


def sample_variant(
    words: Sequence[str],
    options: Sequence[Sequence[str]],
    probability: float,
    seed: int,
    example: int,
    epoch: int,
    field: str,
) -> str:
    """Every word that has options is swapped with a probability; seed, row, epoch and column alone decide."""
    digest = hashlib.blake2b(f"{seed}/{example}/{epoch}/{field}".encode(), digest_size=16).hexdigest()
    numbers = random.Random(int(digest, 16))
    said = []
    for word, choices in zip(words, options, strict=True):
        swaps = bool(choices) and numbers.random() < probability
        said.append(choices[int(numbers.random() * len(choices))] if swaps else word)
    return " ".join(said)


def nearest_words(vectors_VE: ndarray, rows: Sequence[int], k: int) -> list[list[int]]:
    """The other words by their cosine, one by one; of equals the one of lower index."""
    found = []
    for row in rows:
        near = {
            other: sum(a * b for a, b in zip(vectors_VE[row], vectors_VE[other], strict=True))
            for other in range(len(vectors_VE))
            if other != row
        }
        found.append(sorted(near, key=lambda other: (-near[other], other))[:k])
    return found
