"""Models that score one option at a time: the class of transformers for multiple choice, which also takes texts [B, T]
and then returns one score of each [B, 1].

transformers' own classes read a row of options [B, K, T]; both give an option the same score. A folder holds the plain
model. Shape letters: B batch, K options, T tokens.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from torch import Tensor
from transformers import AutoConfig, AutoModelForMultipleChoice

from tasks.errors import ModelError

NAMES_OF_MASKS = ("attention_mask", "input_mask")
"""Names of masks, which the encoder gets as they are given: a traced graph has a bias of scores in place of one."""


class OneByOne:
    """The part of a model that is not of transformers: it reads texts that are no rows of options."""

    base_model: Any
    plain_class: Any
    """The class of transformers."""

    @classmethod
    def with_head_of(cls, student: Any) -> Any:
        """Let a model of another architecture, of transformers' own class, read options one by one, too."""
        own: Any = type(student)
        student.__class__ = one_by_one(own)
        return student

    def forward(self, input_ids: Tensor, **kwargs: Any) -> Any:
        """Return the scores of rows of options [B, K], or of single options [B, 1]."""
        plain: Any = super()
        if input_ids.dim() != 2:
            return plain.forward(input_ids=input_ids, **kwargs)
        masks = {name: kwargs.pop(name) for name in NAMES_OF_MASKS if name in kwargs}
        rows = {name: one[:, None] if isinstance(one, Tensor) else one for name, one in kwargs.items()}

        def with_masks(
            module: Any, args: tuple[object, ...], given: dict[str, object]
        ) -> tuple[object, dict[str, object]]:
            return args, {**given, **masks}

        hook = self.base_model.register_forward_pre_hook(with_masks, with_kwargs=True)
        try:
            return plain.forward(input_ids=input_ids[:, None], **rows)
        finally:
            hook.remove()


@cache
def one_by_one(plain: Any) -> Any:
    """Return the class of a model that reads options one by one; it has the plain name, which its config states."""
    return type(plain.__name__, (OneByOne, plain), {"__module__": plain.__module__, "plain_class": plain})


class AutoModelForOptions(AutoModelForMultipleChoice):
    """Loads models of options; a folder is the one that transformers' own class loads."""

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path: Any, *model_args: Any, **options: Any) -> Any:
        """Load a folder."""
        folder, config = pretrained_model_name_or_path, options.pop("config", None)
        config = config or AutoConfig.from_pretrained(folder, local_files_only=True)
        return class_for_options(config).from_pretrained(folder, config=config, **options)

    @classmethod
    def from_config(cls, config: Any, **options: Any) -> Any:
        """Build a model with random weights."""
        return class_for_options(config)._from_config(config, **options)


def class_for_options(config: Any) -> Any:
    """Return the class of models of options for a config. Raises ModelError where transformers has none."""
    found = AutoModelForMultipleChoice._model_mapping.get(type(config), None)
    if found is None:
        raise ModelError(
            f"a {config.model_type} model has no class for multiple choice in transformers; name a BERT, RoBERTa, "
            f"DistilBERT, ALBERT, ELECTRA, DeBERTa or ModernBERT"
        )
    plain: Any = found[0] if isinstance(found, tuple) else found
    return one_by_one(plain)
