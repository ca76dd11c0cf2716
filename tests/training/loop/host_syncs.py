"""Counts the operations of a step for which a program would wait for its GPU, on a CPU.

A tensor counts as one of the device if it was sent there (``.to(device)``) or created there (``device=…``), belongs to
a module, or was computed from such a tensor. The program waits where it reads such a tensor: a number, a copy to the
host, a shape that depends on values, an index that is still on the host.
"""

from __future__ import annotations

import gc
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

READS = ("item", "tolist", "numpy", "cpu", "__bool__", "__float__", "__int__", "__index__", "__array__", "__contains__")
VALUES = ("_local_scalar_dense", "nonzero", "is_nonzero", "equal", "masked_select", "_unique2", "unique_dim")
INDEXED = ("index", "index_put", "index_put_", "_index_put_impl_")


class HostSyncs:
    """The tensors of the device, and the places in the code that waited for it."""

    def __init__(self) -> None:
        self.counting, self.found = False, list[str]()
        self.storages: dict[int, Any] = {}  # held, so that no address is used twice

    def own(self, *tensors: Tensor) -> None:
        """Note tensors as those of the device."""
        for one in tensors:
            storage = one.untyped_storage()
            self.storages[storage._cdata] = storage

    def has(self, value: Any) -> bool:
        """Tell whether a value is a tensor of the device."""
        return isinstance(value, Tensor) and value.untyped_storage()._cdata in self.storages

    def own_modules(self) -> None:
        """Note the parameters and buffers of all modules."""
        modules = [one for one in gc.get_objects() if issubclass(type(one), nn.Module)]
        assert modules, "a training without modules shows nothing"
        for module in modules:
            self.own(*module.parameters(recurse=False), *module.buffers(recurse=False))

    def waited(self, reason: str) -> None:
        """Count a wait, with the line of the product or of a library that caused it."""
        if self.counting:
            frames = [frame for frame in traceback.extract_stack() if "/tests/" not in frame.filename]
            ours = [frame for frame in frames if "/tasks/" in frame.filename]
            last = [frame for frame in frames if "/torch/" not in frame.filename][-1]
            places = dict.fromkeys(f"{one.filename.split('/tasks/')[-1]}:{one.lineno}" for one in (*ours[-1:], last))
            self.found.append(f"{reason} at {', '.join(places)}")


class Sent(TorchFunctionMode):
    """Follows what the program sends to the device and reads of it."""

    def __init__(self, syncs: HostSyncs) -> None:
        super().__init__()
        self.syncs = syncs

    def __torch_function__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        name, named, first = getattr(function, "__name__", ""), dict(kwargs or {}), args[0] if args else None
        if name in READS and self.syncs.has(first):
            self.syncs.waited(name)
        if name in ("__getitem__", "__setitem__") and self.syncs.has(first):
            indices = args[1] if isinstance(args[1], tuple) else (args[1],)
            if any(isinstance(one, (np.ndarray, list)) for one in indices):
                self.syncs.waited("an index of the host")
        result = function(*args, **named)
        if name == "to" and self.is_to_device(*args[1:], *named.values()) and not self.syncs.has(first):
            if not named.get("non_blocking"):
                self.syncs.waited("a blocking copy to the device")
            result = result.clone()
            self.syncs.own(result)
        elif name == "cpu" and self.syncs.has(first):
            result = result.detach().clone()
        elif isinstance(named.get("device"), torch.device) and isinstance(result, Tensor):
            if name in ("as_tensor", "tensor", "asarray") and not self.syncs.has(first):
                self.syncs.waited("a blocking copy to the device")
            self.syncs.own(result)
        return result

    def is_to_device(self, *given: Any) -> bool:
        return any(isinstance(one, torch.device) or self.syncs.has(one) for one in given)


class Computed(TorchDispatchMode):
    """Follows what is computed of the device's tensors, and counts operations whose result the program must know."""

    def __init__(self, syncs: HostSyncs) -> None:
        super().__init__()
        self.syncs = syncs

    def __torch_dispatch__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if not any(map(self.syncs.has, tensors_in((args, kwargs)))):
            return function(*args, **(kwargs or {}))
        name = function.__name__.split(".")[0]
        if name in VALUES:
            self.syncs.waited(name)
        if name in INDEXED:
            indices = [one for one in args[1] if one is not None]
            if any(one.dtype in (torch.bool, torch.uint8) for one in indices):
                self.syncs.waited("an index of booleans")
            if self.syncs.has(args[0]) and not all(self.syncs.has(one) for one in indices):
                self.syncs.waited("an index of the host")
        result = function(*args, **(kwargs or {}))
        self.syncs.own(*tensors_in(result))
        return result


def tensors_in(value: Any) -> Iterator[Tensor]:
    """Yield the tensors among arguments or results; torch's own walk takes longer than these small operations."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (tuple, list)):
        for one in value:
            yield from tensors_in(one)
    elif isinstance(value, dict):
        yield from tensors_in([*value.values()])


@contextmanager
def followed() -> Iterator[HostSyncs]:
    """Follow the tensors of the device in this block."""
    syncs = HostSyncs()
    with Sent(syncs), Computed(syncs):
        yield syncs


def counted(syncs: HostSyncs, step: Callable[..., None], first: int = 2) -> Callable[..., None]:
    """Return a method that takes a step and counts its waits, from the step ``first`` on: earlier ones make what later
    ones have."""

    def one_step(run: Any, *args: Any) -> None:
        if run.progress.step == 0:
            syncs.own_modules()
        syncs.counting = run.progress.step >= first
        try:
            step(run, *args)
        finally:
            syncs.counting = False

    return one_step
