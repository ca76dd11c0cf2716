"""What differs between families of encoders, in one place: names in a config, where things stand, and what can be read
of a model.

Plain data and functions of a config, without torch: the engine builds and reads by it, and a recipe that asks a family
for what it cannot show is refused by it before anything is loaded. Sources: RoBERTa arXiv:1907.11692, DistilBERT
arXiv:1910.01108, ELECTRA arXiv:2003.10555, XLNet arXiv:1906.08237, ALBERT arXiv:1909.11942, DeBERTa arXiv:2006.03654,
ModernBERT arXiv:2412.13663.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tasks.errors import ModelError

HIDDEN, SCORES, STATES = "hidden states", "attention scores", "queries, keys and values"
"""The inner signals that a method may copy."""

INSTEAD = {
    SCORES: "set matching.attention: 0 and copy hidden states",
    STATES: "use method: layers with matching.attention: 0, which copies hidden states",
    HIDDEN: "leave the section out and learn from its answers (soft targets) alone",
}
"""What to do where a signal cannot be read."""


def nothing(config: Any, kept: Sequence[int]) -> None:
    """Leave a config as it is: its shape is all there is to it."""


def xlnet_heads(config: Any, kept: Sequence[int]) -> None:
    """Let the size of a head follow width and heads."""
    config.d_head = config.d_model // config.n_head


def deberta_pooler(config: Any, kept: Sequence[int]) -> None:
    """Let the pooler be as wide as the model, and heads as wide as their share of it."""
    config.pooler_hidden_size = config.hidden_size
    if hasattr(config, "attention_head_size"):
        config.attention_head_size = config.hidden_size // config.num_attention_heads


def modernbert_kinds(config: Any, kept: Sequence[int]) -> None:
    """Give each layer the kind of attention, local or global, of the layer whose place it takes."""
    config.layer_types = [config.layer_types[index] for index in kept]


def albert_groups(config: Any, kept: Sequence[int]) -> None:
    """Have no more groups of shared weights than turns."""
    config.num_hidden_groups = min(config.num_hidden_groups, len(kept))


def by_table(config: Any) -> bool:
    """Tell whether a model has more than one kind of segment to tell apart."""
    return int(getattr(config, "type_vocab_size", 0) or 0) > 1


def always(config: Any) -> bool:
    """XLNet tells segments apart by comparing them: no table, no limit."""
    return True


def everywhere(config: Any, layer: int) -> int | None:
    """Every token looks at every other."""
    return None


def modernbert_reach(config: Any, layer: int) -> int | None:
    """Return how far a token of a local layer looks to either side; None for a global layer."""
    return int(config.local_attention) // 2 if config.layer_types[layer] == "sliding_attention" else None


@dataclass(frozen=True)
class Family:
    """One family of encoders."""

    names: Mapping[str, str] = field(
        default_factory=lambda: {
            "layers": "num_hidden_layers",
            "hidden": "hidden_size",
            "heads": "num_attention_heads",
            "feed_forward": "intermediate_size",
        }
    )
    """What a config calls a student's knobs."""
    follow: Callable[[Any, Sequence[int]], None] = nothing
    """Makes the rest of a config agree with a new shape, whose layers take the places ``kept``."""
    even_heads: bool = False
    """Whether the size of a head must be even, because positions turn its numbers in pairs."""
    embeddings: str = "embeddings"
    """Where the tables of embeddings stand in the encoder."""
    summary_last: bool = False
    """Whether the summary token stands last and not first; texts are then padded on the left."""
    segments: Callable[[Any], bool] = by_table
    """Tells whether the model is told which text of a pair a token is from."""
    reach: Callable[[Any, int], int | None] = everywhere
    """How far a layer's tokens look."""
    shows: tuple[str, ...] = (HIDDEN, SCORES, STATES)
    """Inner signals that can be read."""
    because: str = ""
    """Why the others cannot."""
    last_norm: str = ""
    """A norm after the last layer that the last hidden state has passed already."""
    linears: Mapping[str, str] = field(default_factory=dict)
    """Where the maps that make queries, keys and values stand in a layer, for those whose attention is not ours."""
    fills_gaps: bool = True
    """Whether there is a masked language model of this kind."""
    word_head: bool = False
    """Whether that model's head is known here, so that the triple loss can ask it about some tokens alone."""
    stands_alone: bool = False
    """Whether a layer takes a hidden state and returns one, whatever its number, so that it can stand in another's
    place."""
    reserved_positions: bool = False
    """Whether the first positions are kept for padding."""
    plain: bool = False
    """Whether self-attention and two feed-forward maps in every layer, a pooler and a head are all its work."""
    on_dropping: str = ""
    """What a person must know who drops layers."""


BERT = Family(plain=True, word_head=True, stands_alone=True)
ROBERTA = replace(BERT, reserved_positions=True)
OTHER_BERT = replace(BERT, word_head=False, stands_alone=False)
OWN_ATTENTION = "its attention adds terms of position to the scores inside of its own code"
XLNET_NAMES = {"layers": "n_layer", "hidden": "d_model", "heads": "n_head", "feed_forward": "d_inner"}
DISTILBERT_NAMES = {"layers": "n_layers", "hidden": "dim", "heads": "n_heads", "feed_forward": "hidden_dim"}
DEBERTA_LINEARS = {
    "query": "attention.self.query_proj",
    "key": "attention.self.key_proj",
    "value": "attention.self.value_proj",
}
SHARED = (
    "an ALBERT's layers are turns of shared weights: dropping some means fewer turns, which saves time and no "
    "parameters"
)
OTHER = Family(shows=(HIDDEN,), because="nobody has proved here what its attention computes")

FAMILIES: dict[str, Family] = {
    "bert": BERT,
    "ernie": replace(OTHER_BERT, plain=False),
    "mobilebert": replace(OTHER_BERT, plain=False),
    "roberta": ROBERTA,
    "camembert": ROBERTA,
    "xlm-roberta": ROBERTA,
    "xlm-roberta-xl": replace(OTHER_BERT, plain=False, reserved_positions=True),
    "data2vec-text": replace(OTHER_BERT, plain=False, reserved_positions=True),
    "mpnet": replace(OTHER_BERT, reserved_positions=True, shows=(HIDDEN,), because=OWN_ATTENTION),
    "distilbert": replace(BERT, names=DISTILBERT_NAMES),
    "electra": BERT,
    "albert": replace(BERT, stands_alone=False, follow=albert_groups, on_dropping=SHARED),
    "modernbert": Family(
        word_head=True, follow=modernbert_kinds, even_heads=True, reach=modernbert_reach, last_norm="final_norm"
    ),
    "deberta-v2": Family(follow=deberta_pooler, shows=(HIDDEN, STATES), because=OWN_ATTENTION, linears=DEBERTA_LINEARS),
    "xlnet": Family(
        names=XLNET_NAMES,
        follow=xlnet_heads,
        embeddings="word_embedding",
        summary_last=True,
        segments=always,
        fills_gaps=False,
        shows=(HIDDEN,),
        because="its attention is one piece, and adds terms of position and segment to the scores",
    ),
}
"""By what a config calls its ``model_type``."""


def family_of(config: Any) -> Family:
    """Return the family of a config, be it an object or what its file says; of an unknown one no more is asked than of
    any encoder."""
    return FAMILIES.get(kind_of(config), OTHER)


def shape_of(config: Any) -> dict[str, int | None]:
    """Return a config's layers, width, heads and feed-forward width by the names of a student's knobs."""
    names = family_of(config).names.items()
    return {
        knob: config.get(name) if isinstance(config, Mapping) else getattr(config, name, None) for knob, name in names
    }


MOST_PARAMETERS = 2e10
"""Far beyond any encoder, and short of what a machine could not even build."""


def about_parameters(layers: int, width: int, inner: int, words: int) -> int:
    """Return about how many parameters a model of this shape has; ``words`` are the numbers of its embeddings."""
    return layers * width * (4 * width + 2 * inner) + words


def require_signal(config: Any, signal: str, where: str = "") -> None:
    """Refuse to copy what a family cannot show; say why, and what can be done."""
    family = family_of(config)
    if signal not in family.shows:
        able = ", ".join(sorted(name for name, other in FAMILIES.items() if signal in other.shows))
        raise ModelError(
            f"{where}{': ' if where else ''}{signal} cannot be read from a {kind_of(config)} model, because "
            f"{family.because}; {INSTEAD[signal]}, "
            f"or use one of {able}"
        )


def require_words(config: Any, where: str = "") -> None:
    """Refuse the triple loss to a family whose vocabulary head is not known here."""
    able = ", ".join(sorted(name for name, other in FAMILIES.items() if other.word_head))
    if not family_of(config).word_head:
        instead = (
            "use method: relations"
            if STATES in family_of(config).shows
            else "use method: layers with matching.attention: 0"
        )
        raise ModelError(
            f"{where}{': ' if where else ''}the triple loss needs a masked-LM head that it knows, and "
            f"{kind_of(config)} is not among {able}; "
            f"{instead}"
        )


def require_alone(config: Any, where: str = "") -> None:
    """Refuse to replace layers one by one where they cannot stand alone."""
    able = ", ".join(sorted(name for name, other in FAMILIES.items() if other.stands_alone))
    if not family_of(config).stands_alone:
        raise ModelError(
            f"{where}{': ' if where else ''}layers of a {kind_of(config)} model cannot be replaced one by one; use "
            f"method: layers, "
            f"or a teacher among {able}"
        )


def require_global(config: Any, where: str = "") -> None:
    """Refuse to compare where tokens look in a family whose layers may look at a neighbourhood only."""
    if family_of(config).reach is not everywhere:
        raise ModelError(
            f"{where}{': ' if where else ''}tokens of a {kind_of(config)} model may look at their neighbours only, "
            f"so where they look cannot be "
            "compared as a whole; use method: relations or layers"
        )


def kind_of(config: Any) -> str:
    """Return what a config calls its kind of model."""
    return str(config.get("model_type") if isinstance(config, Mapping) else config.model_type)


def require_heads(config: Any, width: int, heads: int, where: str = "") -> None:
    """Refuse a number of heads that a width cannot be divided by."""
    said = f"{where}: " if where else ""
    if width % heads:
        raise ModelError(f"{said}width {width} does not divide by {heads} heads; choose heads that divide it")
    if family_of(config).even_heads and width // heads % 2:
        raise ModelError(
            f"{said}{heads} heads of {width // heads} numbers each: this family turns numbers in pairs; choose "
            f"heads of an even size"
        )


def summary_token(config: Any) -> str:
    """Return which token stands for the whole text: the first or the last."""
    return "last" if family_of(config).summary_last else "cls"


def is_told_segments(config: Any) -> bool:
    """Tell whether a model is told which text of a pair a token is from."""
    return family_of(config).segments(config)


MASK_WAYS = {
    **dict.fromkeys(("bert", "roberta", "camembert", "xlm-roberta", "distilbert", "electra", "albert"), "bias"),
    "xlnet": "hidden",
}
"""How an exported graph hands the mask of padding to a family's attention; a family that is not named takes it as it is
given."""


def mask_way(config: Any) -> str:
    """Return how a family's attention is best told what is padding, where its work is written down as a graph."""
    return MASK_WAYS.get(kind_of(config), "given")
