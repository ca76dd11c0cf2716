"""How a model writes that takes the likeliest words: the settings of its generation config, for types that write a text
from a source and for those that continue one."""

from __future__ import annotations

import copy
from typing import Any

from tasks.task_types.units import Writing

OF_SAMPLING = ("temperature", "top_k", "top_p", "min_p", "top_h", "typical_p", "epsilon_cutoff", "eta_cutoff")
"""Settings of a generation config that a model which takes the likeliest words has no use for."""


def likeliest_words(model: Any, writing: Writing) -> Any:
    """Return the generation config by which a model writes as ``writing`` says. Settings that are not among
    ``writing``, such as words that must not be repeated, are the model's own; those of sampling have no effect."""
    own = copy.deepcopy(model.generation_config)
    own.update(
        **dict.fromkeys(OF_SAMPLING),
        do_sample=False,
        num_beams=writing.beams,
        num_return_sequences=writing.best,
        length_penalty=writing.length_penalty if writing.beams > 1 else None,
        early_stopping=False,
        max_length=None,
        max_new_tokens=writing.most,
        min_length=None,
        min_new_tokens=writing.least or None,
        use_cache=True,
    )
    return own
