"""A model whose weights contain those of many smaller ones: a sub-network reads the first numbers of each axis, and has
norms of its own where it is narrower.

Method: Hou et al. 2020, DynaBERT, arXiv:2004.04037. A narrower hidden state has another mean and variance, so that
norms in common would be pulled both ways: each width has its own scales and shifts, as switchable norms have (Yu et al.
2018, arXiv:1812.08928). A sub-network is computed by the module of its own plain folder with these weights in place of
its own, so that what learns is what is written.
Shape letters: D width, H heads, F neurons.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from tasks.errors import ModelError
from tasks.methods.layers.layer_dropping import encoder_layers
from tasks.methods.pruning.sub_networks import SubShape, first_of_each_axis
from tasks.methods.pruning.widths import width_and_heads_of
from tasks.training.models.students import smaller

NORMS_FILE, DEPTHS_FILE = "norms.safetensors", "supernet.json"


class Supernet(nn.Module):
    """A model in the order of importance, the layers that each depth has, and the norms of each narrower width."""

    def __init__(self, model: Any, kept: Mapping[int, Sequence[int]], heads: Sequence[int]) -> None:
        """Make a supernet of a model; ``kept`` are the layers of each depth, counted from 0, and ``heads`` the numbers
        of heads. Raises ModelError for a model whose layers share their weights."""
        super().__init__()
        self.model, self.kept = model, {depth: list(layers) for depth, layers in kept.items()}
        self.width, self.heads = width_and_heads_of(model.config)
        layers = encoder_layers(model)
        every = [value for layer in layers for value in layer.parameters()]
        if len(layers) != model.config.num_hidden_layers or len(set(every)) < len(every):
            raise ModelError(
                f"a supernet drops layers one by one, and layers of a model of type {model.config.model_type} share "
                "their weights; drop layers or prune neurons instead"
            )
        self.stack = next(name for name, module in model.named_modules() if module is layers)
        own = dict(model.named_parameters())
        self.norms = nn.ModuleDict()
        for width in (self.width_of(count) for count in heads if count < self.heads):
            values = {
                without_dots(name): nn.Parameter(own[name].detach()[:width].clone()) for name in self.names_of_norms()
            }
            self.norms[str(width)] = nn.ParameterDict(values)

    def width_of(self, heads: int) -> int:
        """Return the width that goes with so many heads."""
        return self.width // self.heads * heads

    def names_of_norms(self) -> list[str]:
        """Return the names of the scales and shifts of all norms of the stream."""
        return [
            f"{name}.{kind}"
            for name, module in self.model.named_modules()
            if isinstance(module, nn.LayerNorm) and tuple(module.normalized_shape) == (self.width,)
            for kind, _ in module.named_parameters()
        ]

    def norms_of(self, width: int) -> dict[str, Tensor]:
        """Return the scales and shifts of a narrower width by their keys; those of the whole width are the model's."""
        return {} if width == self.width else dict(cast("nn.ParameterDict", self.norms[str(width)]).items())

    def config_of(self, shape: SubShape) -> Any:
        """Return the config of a sub-network."""
        width = self.width_of(shape.heads)
        sizes = {"layers": shape.layers, "hidden": width, "heads": shape.heads, "feed_forward": shape.neurons}
        config = smaller(self.model.config, SimpleNamespace(**sizes))
        if getattr(config, "embedding_size", None) == self.width:
            config.embedding_size = width  # such embeddings are part of the stream: there is no map between the two
        before = getattr(self.model.config, "kept_layers", None) or range(len(self.model_layers))
        config.kept_layers = [int(before[layer]) for layer in self.kept[shape.layers]]
        return config

    @property
    def model_layers(self) -> nn.ModuleList:
        """The layers of the whole model."""
        return encoder_layers(self.model)

    def module_of(self, shape: SubShape, place: str) -> Any:
        """Return a module of a sub-network's shape; on the place ``meta`` it has no weights of its own."""
        with torch.device(place):
            small = type(self.model)._from_config(self.config_of(shape), dtype=torch.float32)
        small.set_attn_implementation(self.model.config._attn_implementation)
        return small.train(self.model.training)

    def values_of(self, shape: SubShape, small: nn.Module) -> dict[str, Tensor]:
        """Return the weights of a sub-network by their name in its own module, as views."""
        width = self.width_of(shape.heads)
        whole = {**dict(self.model.named_parameters()), **dict(self.model.named_buffers())}
        norms = self.norms_of(width)
        found: dict[str, Tensor] = {}
        for name, value in (*small.named_parameters(), *small.named_buffers()):
            source = self.name_in_whole(name, shape.layers)
            key = without_dots(source)
            found[name] = norms[key] if key in norms else first_of_each_axis(whole[source], value.shape)
        return found

    def name_in_whole(self, name: str, layers: int) -> str:
        """Return the name of a sub-network's weight in the whole model."""
        start = f"{self.stack}."
        if not name.startswith(start):
            return name
        number, _, rest = name.removeprefix(start).partition(".")
        return f"{start}{self.kept[layers][int(number)]}.{rest}"

    def cut_shape(self, shape: SubShape) -> Any:
        """Return a sub-network as a model of its own."""
        small = self.module_of(shape, str(self.model.device))
        with torch.no_grad():
            own = {**dict(small.named_parameters()), **dict(small.named_buffers())}
            for name, value in self.values_of(shape, small).items():
                own[name].copy_(value)
        return small

    def write(self, folder: Path) -> None:
        """Write what a plain folder of the whole model does not hold."""
        norms = {
            f"{width}.{key}": value.detach().cpu()
            for width in self.norms
            for key, value in self.norms_of(int(width)).items()
        }
        save_file(norms, folder / NORMS_FILE)
        (folder / DEPTHS_FILE).write_text(json.dumps({"kept": {str(depth): kept for depth, kept in self.kept.items()}}))


def read_supernet(model: Any, folder: Path) -> Supernet:
    """Return the supernet of a folder, whose whole model is loaded."""
    kept = json.loads((folder / DEPTHS_FILE).read_text())["kept"]
    norms = load_file(folder / NORMS_FILE)
    width, heads = width_and_heads_of(model.config)
    counts = {int(name.partition(".")[0]) * heads // width for name in norms}
    found = Supernet(model, {int(depth): layers for depth, layers in kept.items()}, sorted(counts))
    with torch.no_grad():
        for name, value in norms.items():
            its_width, _, key = name.partition(".")
            found.norms_of(int(its_width))[key].copy_(value)
    return found


def without_dots(name: str) -> str:
    """Return the name of a parameter as one of a dictionary of parameters, which has no dots."""
    return name.replace(".", ":")
