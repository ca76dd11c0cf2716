"""Parts of heads that several task types share: classes of transformers, labels that are texts, and untrained heads.

transformers is imported when a class is requested. Shape letter: N rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from torch import Tensor

    from tasks.task_types.units import KeptWords

KEPT_IDS, KEPT_LOGS = "kept_ids", "kept_logs"
"""The stored answers of a teacher about a vocabulary: ids of its likeliest words, and logarithms of probabilities with
that of the others behind them."""
MOST_OF_INT16 = 2**15


def sequence_classifier() -> Any:
    """Return the class of models with one vector for each text."""
    from transformers import AutoModelForSequenceClassification

    return AutoModelForSequenceClassification


def token_classifier() -> Any:
    """Return the class of models with one vector for each token."""
    from transformers import AutoModelForTokenClassification

    return AutoModelForTokenClassification


def state_tokenizer(auto_class: Any, config: Any, tokenizer: Any) -> None:
    """State in a config what models of a class of ours take from their tokenizer, for those that are built from the
    config alone."""
    state = getattr(auto_class, "state_tokenizer", None)
    if state is not None:
        state(config, tokenizer)


def words_at_a_token(model: Any) -> int:
    """Return how many numbers a model computes for each token where it answers about a vocabulary: one for each word;
    1 for any other model. They decide how many tokens it can read at once."""
    table = model.get_output_embeddings()
    return 1 if table is None else int(table.weight.shape[0])


def plain_class_for(auto_class: Any, config: Any) -> Any:
    """Return the class that an auto class of transformers has for a config; None where it has none."""
    found = auto_class._model_mapping.get(type(config), None)
    return found[0] if isinstance(found, tuple) else found


@cache
def class_with(part: Any, plain: Any) -> Any:
    """Return a class of transformers with a part of ours before it; it has the plain name, which its config states, and
    so folders stay plain ones."""
    return type(plain.__name__, (part, plain), {"__module__": plain.__module__, "plain_class": plain})


class PartOfModel:
    """The part of a model that is not of transformers, before a class of transformers (``class_with``)."""

    plain_class: Any
    """The class of transformers."""

    @classmethod
    def with_head_of(cls, student: Any) -> Any:
        """Give a model of another architecture, of transformers' own class, the same part; return it."""
        part, _ = cls.__bases__
        own: Any = type(student)
        student.__class__ = class_with(part, own)
        return student


class LoadedByConfig:
    """The loading of an auto class whose classes have a part of ours; the other base is transformers' auto class."""

    @classmethod
    def class_for(cls, config: Any) -> Any:
        """Return the class for a config. Raises ModelError for a model that cannot be of the task type."""
        raise NotImplementedError

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path: Any, *model_args: Any, **options: Any) -> Any:
        """Load a folder."""
        from transformers import AutoConfig

        folder, config = pretrained_model_name_or_path, options.pop("config", None)
        config = config or AutoConfig.from_pretrained(folder, local_files_only=True)
        return cls.class_for(config).from_pretrained(folder, config=config, **options)

    @classmethod
    def from_config(cls, config: Any, **options: Any) -> Any:
        """Build a model with random weights."""
        return cls.class_for(config)._from_config(config, **options)


def stored_words(logits_UV: Tensor, kept: KeptWords) -> dict[str, Tensor]:
    """Return a teacher's answers about a vocabulary as they are stored, and as its students learn them."""
    import torch

    from tasks.methods.next_words.kept_words import kept_words

    ids_UK, logs_UC = kept_words(logits_UV, words=kept.words, temperature=kept.temperature)
    small = logits_UV.shape[-1] <= MOST_OF_INT16
    return {
        KEPT_IDS: ids_UK.to(torch.int16 if small else torch.int32),
        KEPT_LOGS: logs_UC.to(torch.float16 if kept.bits == 16 else torch.float32),
    }


def labels_as_texts(labels: Sequence[Any]) -> np.ndarray:
    """Return the labels of rows [N]; empty where a row has none."""
    return np.asarray(["" if label is None else label for label in labels], dtype=str)


def as_drawn(model: Any, read_targets: Callable[[], np.ndarray]) -> AbstractContextManager[None]:
    """Leave an untrained head as it is: labels that are names, places or grades tell nothing about the size of its
    outputs."""
    return nullcontext()
