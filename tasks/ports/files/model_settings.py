"""The settings in a model's JSON files that are always refused: those that load code, kernels or other weights, and
sizes that no model has.

Both ways to load a model use this one list: a model that a recipe names (``sources``), and a version that is pulled
(``tracking/verified_download``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

from pydantic import JsonValue

from tasks.architectures import ModelConfig
from tasks.architectures.known_architectures import architecture_of, shape_of
from tasks.errors import ModelError
from tasks.ports.files.bounded_json import read_json
from tasks.recipe.knobs import MOST_PARAMETERS, about_parameters

CODE_KEYS = {
    "auto_map",
    "custom_pipelines",
    "custom_generate",
    "trust_remote_code",
    "transformers_weights",
    "use_kernels",
    "kernel_config",
}
"""Settings that would make transformers load a model's own code, kernels from a hub, or other weights than the checked
ones."""
KERNEL = re.compile(r"implementation|kernel")
"""Pattern of settings that may name a kernel; a kernel in a repository would be fetched from a hub and run."""
WORDS = {"label2id", "id2label"}
"""Settings whose keys are words, not settings."""
SETTINGS = ("config.json", "tokenizer_config.json", "special_tokens_map.json", "generation_config.json")
"""A model's settings files."""
WORD_FILES = ("tokenizer.json", "vocab.json", "added_tokens.json")
"""Files whose keys are words, not settings."""
LARGEST_FILE = 20_000_000  # bytes of a settings file
LIMITS = {"layers": 1_000, "hidden": 100_000, "heads": 10_000, "feed_forward": 1_000_000}
OTHER_LIMITS = {
    "vocab_size": 10_000_000,
    "max_position_embeddings": 10_000_000,
    "type_vocab_size": 10_000,
    "embedding_size": 100_000,
    "num_hidden_groups": 1_000,
    "inner_group_num": 1_000,
    "num_labels": 1_000_000,
    "head_dim": 100_000,
}
"""The largest sizes that a config may have; the largest encoders have a tenth of them."""


def foreign(values: Any) -> Iterator[str]:
    """Yield the name of every setting, also a nested one, that loads external code, kernels or weights."""
    for key, value in settings_in(values):
        if key in CODE_KEYS and value not in (None, False) or KERNEL.search(key) and names_repository(value):
            yield key


def settings_in(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield keys and values of all nested mappings."""
    for key, inner in (
        value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else ()
    ):
        if isinstance(key, str):
            yield key, inner
        if key not in WORDS:
            yield from settings_in(inner)


def names_repository(value: Any) -> bool:
    """Return whether a setting, or any value in it, may name a repository of a hub (owner/name)."""
    if isinstance(value, Mapping | list):
        return any(names_repository(inner) for inner in (value.values() if isinstance(value, Mapping) else value))
    return isinstance(value, str) and "/" in value


def require_plain_settings(folder: Path) -> ModelConfig:
    """Return a model's config after a check of all settings.

    Raises ModelError if a setting loads code, a kernel or other weights, or if a size is no whole number or too large.
    """
    found = {name: read_settings(folder / name) for name in SETTINGS}
    for name, values in found.items():
        for key in foreign(values):
            if key == "transformers_weights":
                raise ModelError(
                    f"{folder} refers to other weights ({key} in {name}); only model.safetensors is loaded"
                )
            raise ModelError(
                f"{folder} refers to its own code ({key} in {name}), which is never run; use a model of a known "
                f"family, without that setting"
            )
    config = cast(ModelConfig, found["config.json"])
    require_sizes(config, folder)
    return config


def read_settings(path: Path) -> dict[str, JsonValue]:
    """Return the content of one of a model's JSON files; empty if it does not exist."""
    try:
        found = read_json(path, LARGEST_FILE) if path.is_file() else {}
        if not isinstance(found, dict):
            raise ValueError(f"it holds a {type(found).__name__}")
    except (ValueError, OSError) as error:
        raise ModelError(f"{path} is not a JSON object that can be read ({error}); save the model again") from error
    return found


def architecture_fact(folder: Path) -> dict[str, str]:
    """Return the architecture of the model in a folder as a fact of its artifact, by which the keys of stages count
    the code of that architecture alone; nothing for what is no model."""
    try:
        found = read_json(folder / "config.json", LARGEST_FILE) if (folder / "config.json").is_file() else {}
    except (ValueError, OSError):
        return {}
    named = found.get("model_type") if isinstance(found, dict) else None
    return {"architecture": named} if isinstance(named, str) else {}


def require_sizes(config: ModelConfig, folder: Path) -> None:
    """Refuse sizes that are no whole numbers or too large for any model: transformers would build such a model for
    hours, or until memory is exhausted."""
    architecture = architecture_of(config)
    names = architecture.shape
    limits = {names[knob]: limit for knob, limit in LIMITS.items() if knob in names}
    for name, most in {**limits, **OTHER_LIMITS}.items():
        size = config.get(name)
        if size is not None and (type(size) is not int or not 0 <= size <= most):
            said = f"{name}: {str(size)[:40]!r}"
            raise ModelError(
                f"{folder / 'config.json'} says {said}; a whole number up to {most:,} is legal; correct it, or name "
                f"another model"
            )
    shape = shape_of(config)
    layers, width, inner = (shape.get(knob) or 0 for knob in ("layers", "hidden", "feed_forward"))
    parameters = about_parameters(
        architecture.distinct_layers(config, layers),
        width,
        inner,
        (config.get("vocab_size") or 0) * (config.get("embedding_size") or width),
    )
    if parameters > MOST_PARAMETERS:
        raise ModelError(
            f"{folder / 'config.json'} describes a model of {parameters:.2g} parameters; at most "
            f"{MOST_PARAMETERS:.0g} are loaded"
        )
