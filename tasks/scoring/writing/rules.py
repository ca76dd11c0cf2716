"""What a model may write, as its generation config and the card of its export state it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tasks.errors import ModelError
from tasks.scoring.memory import WritingRules
from tasks.task_types.texts.likeliest_words import NOT_FOLLOWED, settings_among
from tasks.task_types.units import Writing

LEAST_LENGTHS = "least"
"""The entry of the card of a graph that continues texts with ``least_lengths``."""
OTHER_RULES: Mapping[str, object] = {
    "encoder_no_repeat_ngram_size": 0,
    "encoder_repetition_penalty": 1.0,
    "exponential_decay_length_penalty": None,
    "begin_suppress_tokens": None,
    "sequence_bias": None,
    "guidance_scale": 1.0,
    "watermarking_config": None,
    **NOT_FOLLOWED,
}
"""Settings that would change a text and are not built, with the value that changes none."""


def rules_of(generation: Any, begin: int) -> WritingRules:
    """Return the rules of a generation config of transformers, and the word that begins a text. Raises ModelError for a
    setting that is not built."""
    other = settings_among(generation.to_dict(), OTHER_RULES)
    several = [words for words in generation.bad_words_ids or [] if len(words) > 1]
    if other or several:
        raise ModelError(
            f"its generation config sets {other[0] if other else 'bad_words_ids with several tokens'}, which graphs do "
            f"not follow; remove it from generation_config.json of the teacher"
        )
    own = writing_of_config(generation)
    return {
        "begin": begin,
        "ends": ids_in(generation.eos_token_id),
        "never": [*(words[0] for words in generation.bad_words_ids or []), *(generation.suppress_tokens or [])],
        "first": generation.forced_bos_token_id,
        "last": next(iter(ids_in(generation.forced_eos_token_id)), None),
        "no_repeat": generation.no_repeat_ngram_size or 0,
        "repetition_penalty": float(generation.repetition_penalty or 1.0),
        "normalized": bool(generation.renormalize_logits),
        "beams": own.beams,
        "length_penalty": own.length_penalty,
        "most": own.most,
    }


def least_lengths(generation: Any) -> dict[str, int]:
    """Return, of a generation config by which a language model continues texts, how many words it writes at least, and
    how many there are at least with those of the text before; models that read a source follow none."""
    return {"new": generation.min_new_tokens or 0, "in_all": generation.min_length or 0}


def least_words(card: Mapping[str, object], before: int) -> int:
    """Return how many words a graph writes at least behind a text of ``before`` tokens, by its card; an older card
    states nothing of it."""
    stated = card.get(LEAST_LENGTHS)
    return max(0, stated["new"], stated["in_all"] - before) if isinstance(stated, dict) else 0


def writing_of_config(generation: Any) -> Writing:
    """Return how a model writes by its generation config of transformers."""
    most = generation.max_new_tokens or generation.max_length or Writing.most
    return Writing(
        generation.num_beams or 1,
        1.0 if generation.length_penalty is None else generation.length_penalty,
        int(most),
    )


def ids_in(ids: int | Sequence[int] | None) -> list[int]:
    """Return ids that may be one, several or none as a list."""
    if ids is None:
        return []
    return [ids] if isinstance(ids, int) else list(ids)
