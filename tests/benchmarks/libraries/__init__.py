"""Other libraries of distillation beside ours. What torchvision needs to be imported stands here: before transformers,
which imports it wherever it is installed."""

from __future__ import annotations

import importlib.util

import torch


def without_operators_of_images() -> None:
    """Let torchvision, which torchdistill imports, be imported beside a torch for processors alone.

    PyPI's torchvision is built for CUDA's torch. Beside another, its operators are missing, and its import ends where
    it says how two of them behave; nothing of a text model calls them.
    """
    try:
        importlib.import_module("torchvision")
    except (RuntimeError, OSError):
        for name in ("nms", "qnms"):
            torch.library.define(f"torchvision::{name}", "(Tensor dets, Tensor scores, float threshold) -> Tensor")


if importlib.util.find_spec("torchvision") is not None:
    without_operators_of_images()
