"""Names of the mixers, and the version of the distribution, as plain data: recipes are checked without torch."""

from __future__ import annotations

from collections.abc import Sequence

DISTRIBUTION, IMPORT_NAME, VERSION = "limbeck-models", "limbeck_models", "0.2.0"
"""The distribution, the package that it installs, and its version; a folder states that of its saving."""
INSTALLED_BY = "pip install ./tasks/modeling"
"""The command that installs it, in the repository: it is at no index."""
OWN_TYPES = ("limbeck-encoder", "limbeck-seq2seq", "limbeck-decoder")
"""The ``model_type`` of each kind of model that this package has."""
BLEND = "+softmax"
"""Suffix of a synthesizer whose logits are mixed with those of queries and keys."""
SYNTHESIZER_NAMES = (
    "synth-random",
    "synth-fixed",
    "synth-random-factorized",
    "synth-dense",
    "synth-dense-factorized",
)
MIXER_NAMES = (
    "softmax",
    "light",
    "dynamic",
    "lsra",
    "lsra-dynamic",
    *SYNTHESIZER_NAMES,
    *(f"{name}{BLEND}" for name in SYNTHESIZER_NAMES),
    "linear",
    "favor",
    "linformer",
    "local",
)
"""Every mixer that a layer may have."""
SQUARE_IN_GRAPHS = ("linear", "local")
"""Mixers whose causal form reads by blocks, and whose graphs do not: one graph reads whole texts and single words, and
the number of its blocks would be fixed."""
KERNELS = (3, 7, 15, 31)
"""Widths of the convolutions of the first layers; further layers have the last one (Wu et al. 2020, LSRA)."""


def is_of_fixed_size(mixer: str) -> bool:
    """Tell whether a mixer has weights for each position, so that its longest input is fixed when it is built."""
    return mixer == "linformer" or mixer.startswith("synth-")


def reads_back(mixer: str) -> bool:
    """Tell whether a mixer can read nothing but the words before, as one in a decoder must: Linformer's keys have read
    the whole text, and FAVOR+ divides by the largest of all keys."""
    return mixer not in ("linformer", "favor")


def in_each_layer(mixer: str | Sequence[str], layers: int) -> list[str]:
    """Return the mixer of each layer: one name for all of them, or a name for each.

    Raises ValueError for an unknown name, and for another number of names than layers.
    """
    names = [mixer] * layers if isinstance(mixer, str) else list(mixer)
    unknown = next((name for name in names if name not in MIXER_NAMES), None)
    if unknown is not None:
        raise ValueError(f"unknown mixer {unknown!r}; legal are {', '.join(MIXER_NAMES)}")
    if len(names) != layers:
        raise ValueError(f"{len(names)} mixers are named for {layers} layers; name one for all, or one for each")
    return names
