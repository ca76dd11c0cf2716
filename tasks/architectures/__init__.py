"""Encoder architectures, one file each: names in a config, construction of students, readable signals, masked-LM head,
droppable layers, export.

No module here imports torch or transformers while it is loaded, so that recipes are checked without them; functions
that handle a model import inside. ``architecture.py`` is the interface, ``known_architectures.py`` the list.
The type of a model's config, which all of them read, stands here.
"""

from __future__ import annotations

from typing import TypedDict


class ModelConfig(TypedDict, total=False):
    """The config of a model, with the entries that are read by their own names; those of a shape have other names in
    each architecture, and are read by ``shape_of``."""

    model_type: str
    architectures: list[str] | None
    problem_type: str | None
    num_labels: int
    id2label: dict[str, str] | None
    vocab_size: int | None
    embedding_size: int | None
    num_hidden_groups: int | None
    quantization_config: object
