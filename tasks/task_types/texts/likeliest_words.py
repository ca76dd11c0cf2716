"""How a model writes that takes the likeliest words: the settings of its generation config, for types that write a text
from a source and for those that continue one."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from tasks.errors import ModelError
from tasks.task_types.units import Writing

OF_SAMPLING = ("temperature", "top_k", "top_p", "min_p", "top_h", "typical_p", "epsilon_cutoff", "eta_cutoff")
"""Settings of a generation config that a model which takes the likeliest words has no use for."""
OF_OUTPUTS = ("return_dict_in_generate", "output_scores", "output_logits", "output_attentions", "output_hidden_states")
"""Settings that ask for more than the written words."""
NOT_FOLLOWED: Mapping[str, object] = {
    "stop_strings": None,
    "penalty_alpha": 0.0,
    "dola_layers": None,
    "constraints": None,
    "force_words_ids": None,
    "num_beam_groups": 1,
    "prompt_lookup_num_tokens": None,
    "token_healing": False,
    "max_time": None,
}
"""Settings with which no model here writes, with the value that changes nothing: transformers has them for one text at
a time, or with code from a hub, or texts would depend on the speed of the machine."""


def likeliest_words(model: Any, writing: Writing) -> Any:
    """Return the generation config by which a model writes as ``writing`` says. Settings that are not among
    ``writing``, such as words that must not be repeated, are the model's own; those of sampling have no effect. Raises
    ModelError for a setting with which no model here writes."""
    own = copy.deepcopy(model.generation_config)
    require_followed(own.to_dict(), "the model")
    own.update(
        **dict.fromkeys(OF_SAMPLING),
        **dict.fromkeys(OF_OUTPUTS, False),
        do_sample=False,
        num_beams=writing.beams,
        num_return_sequences=writing.best,
        length_penalty=writing.length_penalty if writing.beams > 1 else None,
        early_stopping=False,
        max_length=None,
        max_new_tokens=writing.most,
        # not None, for which transformers takes the model's own: what students learn, what is judged and what a graph
        # writes would have different lengths
        min_length=0,
        min_new_tokens=writing.least or (None if own.min_new_tokens is None else 0),
        use_cache=True,
    )
    return own


def likeliest_next_words(model: Any, most: int) -> Any:
    """Return the generation config by which a language model continues a text by at most so many words: one after
    another, and not fewer than its own config says."""
    own = likeliest_words(model, Writing(most=most))
    own.update(min_length=model.generation_config.min_length, min_new_tokens=model.generation_config.min_new_tokens)
    return own


def settings_among(stated: Mapping[str, object], idle: Mapping[str, object]) -> list[str]:
    """Return the names of some settings that a generation config sets otherwise than to the value that changes nothing
    (``idle``)."""
    return [name for name, nothing in idle.items() if stated.get(name) not in (None, nothing)]


def require_followed(stated: Mapping[str, object], whose: str) -> None:
    """Raise ModelError for a generation config with a setting with which no model here writes."""
    if other := settings_among(stated, NOT_FOLLOWED):
        raise ModelError(
            f"the generation config of {whose} sets {other[0]}, with which no model writes here; remove it from "
            f"generation_config.json"
        )
