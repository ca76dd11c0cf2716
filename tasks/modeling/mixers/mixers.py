"""The mixers by name."""

from __future__ import annotations

from typing import Any

from tasks.modeling.mixers.dynamic import Dynamic
from tasks.modeling.mixers.favor import Favor
from tasks.modeling.mixers.light import Light
from tasks.modeling.mixers.linear import LinearAttention
from tasks.modeling.mixers.linformer import Linformer
from tasks.modeling.mixers.local import Local
from tasks.modeling.mixers.lsra import DynamicLsra, Lsra
from tasks.modeling.mixers.mixer import Mixer
from tasks.modeling.mixers.softmax import Softmax
from tasks.modeling.mixers.synthesizers.dense import Dense
from tasks.modeling.mixers.synthesizers.dense_factorized import DenseFactorized
from tasks.modeling.mixers.synthesizers.random_factorized import RandomFactorized
from tasks.modeling.mixers.synthesizers.random_table import FixedTable, RandomTable
from tasks.modeling.mixers.synthesizers.synthesizer import Synthesizer
from tasks.modeling.names import BLEND

MIXERS: dict[str, type[Mixer]] = {
    "softmax": Softmax,
    "light": Light,
    "dynamic": Dynamic,
    "lsra": Lsra,
    "lsra-dynamic": DynamicLsra,
    "linear": LinearAttention,
    "favor": Favor,
    "linformer": Linformer,
    "local": Local,
}
SYNTHESIZERS: dict[str, type[Synthesizer]] = {
    "synth-random": RandomTable,
    "synth-fixed": FixedTable,
    "synth-random-factorized": RandomFactorized,
    "synth-dense": Dense,
    "synth-dense-factorized": DenseFactorized,
}


def mixer_of(config: Any, layer: int, *, causal: bool = False) -> Mixer:
    """Return the mixer of a layer, counted from 0. Raises ValueError for an unknown name."""
    name = config.mixer[layer]
    plain = name.removesuffix(BLEND)
    if plain in SYNTHESIZERS:
        return SYNTHESIZERS[plain](config, layer, causal=causal, blend=name.endswith(BLEND))
    if name not in MIXERS:
        raise ValueError(f"unknown mixer {name!r}; legal are {', '.join([*MIXERS, *SYNTHESIZERS])}")
    return MIXERS[name](config, layer, causal=causal)
