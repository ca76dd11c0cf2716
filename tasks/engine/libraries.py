"""Torch and transformers in a process of ours, with the threads of its job and without logs of their own."""

from __future__ import annotations


def prepare_torch(threads: int | None) -> None:
    """Import torch, limit it to the number of threads that the job may use, and silence transformers."""
    import torch
    import transformers

    if threads:
        torch.set_num_threads(threads)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()


def prepare_tracing(threads: int | None) -> None:
    """Do the same for a job that traces models: torch's exporter says much about each of them."""
    import logging

    prepare_torch(threads)
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
