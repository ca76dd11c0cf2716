"""Registration of the classes of this package with transformers, so that its auto classes load their folders."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tasks.modeling.names import DISTRIBUTION, IMPORT_NAME, INSTALLED_BY, OWN_TYPES, VERSION, is_of_fixed_size


def register_classes() -> None:
    """Make the auto classes of transformers know this package's classes; calling it again changes nothing."""
    from transformers import (
        AutoConfig,
        AutoModel,
        AutoModelForCausalLM,
        AutoModelForSeq2SeqLM,
        AutoModelForSequenceClassification,
    )

    from tasks.modeling.configuration import LimbeckDecoderConfig, LimbeckEncoderConfig, LimbeckSeq2SeqConfig
    from tasks.modeling.decoder import LimbeckDecoderForCausalLM, LimbeckDecoderModel
    from tasks.modeling.encoder import LimbeckEncoderForSequenceClassification, LimbeckEncoderModel
    from tasks.modeling.translator import LimbeckSeq2SeqForConditionalGeneration, LimbeckSeq2SeqModel

    known: list[tuple[Any, Any, Any, Any]] = [
        (
            LimbeckEncoderConfig,
            LimbeckEncoderModel,
            AutoModelForSequenceClassification,
            LimbeckEncoderForSequenceClassification,
        ),
        (LimbeckSeq2SeqConfig, LimbeckSeq2SeqModel, AutoModelForSeq2SeqLM, LimbeckSeq2SeqForConditionalGeneration),
        (LimbeckDecoderConfig, LimbeckDecoderModel, AutoModelForCausalLM, LimbeckDecoderForCausalLM),
    ]
    for config, bare, loader, headed in known:
        AutoConfig.register(config.model_type, config, exist_ok=True)
        AutoModel.register(config, bare, exist_ok=True)
        loader.register(config, headed, exist_ok=True)


def register_if_own(folders: Iterable[Path]) -> None:
    """Register the classes if the model of one of these folders needs them; others import nothing."""
    if any(has_own_type(folder) for folder in folders):
        register_classes()


def has_own_type(folder: Path) -> bool:
    """Tell whether a folder holds a model of this package."""
    return stated_config(folder).get("model_type") in OWN_TYPES


def stated_config(folder: Path) -> dict[str, object]:
    """Return the contents of a folder's config; empty where there is none."""
    try:
        found = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def needs_of(folder: Path) -> str:
    """Return a sentence on what loading a folder needs beside transformers; empty for a model of transformers."""
    if not has_own_type(folder):
        return ""
    config = stated_config(folder)
    stated = [config.get("mixer"), config.get("decoder_mixer")]
    mixers = [str(name) for names in stated if isinstance(names, list) for name in names]
    fixed = (
        f" Its longest input is {config.get('max_position_embeddings')} tokens."
        if any(map(is_of_fixed_size, mixers))
        else ""
    )
    return (
        f"its attention ({', '.join(dict.fromkeys(mixers))}) is not in transformers: install {DISTRIBUTION} "
        f"{config.get('limbeck_models', VERSION)} ({INSTALLED_BY}, in the repository of Limbeck) and "
        f"import {IMPORT_NAME} first; its exported graphs need neither.{fixed}"
    )
