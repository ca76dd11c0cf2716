"""Models that score one option at a time: the class of transformers for multiple choice, which also takes texts [B, T]
and then returns one score of each [B, 1].

transformers' own classes read a row of options [B, K, T]; both give an option the same score. A folder holds the plain
model. Shape letters: B batch, K options, T tokens.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor
from transformers import AutoModelForMultipleChoice

from tasks.errors import ModelError
from tasks.task_types.common_head import LoadedByConfig, PartOfModel, class_with, plain_class_for

NAMES_OF_MASKS = ("attention_mask", "input_mask")
"""Names of masks, which the encoder gets as they are given: a traced graph has a bias of scores in place of one."""


class OneByOne(PartOfModel):
    """The part of a model that is not of transformers: it reads texts that are no rows of options."""

    base_model: Any

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


class AutoModelForOptions(LoadedByConfig, AutoModelForMultipleChoice):
    """Loads models of options; a folder is the one that transformers' own class loads."""

    @classmethod
    def class_for(cls, config: Any) -> Any:
        """Return the class of models of options for a config. Raises ModelError where transformers has none."""
        plain = plain_class_for(AutoModelForMultipleChoice, config)
        if plain is None:
            raise ModelError(
                f"a model of type {config.model_type} has no class for multiple choice in transformers; name a BERT, "
                "RoBERTa, DistilBERT, ALBERT, ELECTRA, DeBERTa or ModernBERT"
            )
        return class_with(OneByOne, plain)
