"""How the time of each mixer grows with the length of a text, and the memory that it takes: ``python -m
tasks.modeling.growth [MIXER or model type of transformers …]``.

One layer's mixer, with its maps, forward, one text, 4 heads of 64, float32, one thread. Times are processor seconds,
the least of several calls, so that other work on the machine hardly counts; the slope is that of the logarithm of the
time over the logarithm of the length. Memory is the most that torch's tensors took at once within a call, beside the
text and the weights; what an operation takes for itself and does not ask torch for is not counted. Shape letters: B
batch, T tokens, D width.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import accumulate
from typing import Any

from tasks.modeling.names import MIXER_NAMES

LENGTHS = (256, 512, 1024, 2048, 4096)
SLOPE_FROM = 512
CALLS = 3


def measured_growth(name: str, lengths: Sequence[int]) -> tuple[list[float], int]:
    """Return the processor seconds of one call at each length, and the bytes that one takes at the last length."""
    import torch

    torch.set_num_threads(1)
    calls, seconds = calls_of_mixer(name, lengths) if name in MIXER_NAMES else calls_of_models(name, lengths), []
    with torch.inference_mode():
        for call in calls:
            seconds.append(min(seconds_of(call) for _ in range(CALLS)))
        taken = peak_bytes(call)
    return seconds, taken


def seconds_of(call: Callable[[], object]) -> float:
    """Return the processor seconds of one call."""
    start = time.process_time()
    call()
    return time.process_time() - start


def calls_of_models(model_type: str, lengths: Sequence[int]) -> Iterator[Callable[[], object]]:
    """Yield a call of one layer of a model of transformers at each length."""
    from tasks.modeling.growing_models import call_of_model

    for length in lengths:
        yield call_of_model(model_type, length)


def calls_of_mixer(mixer: str, lengths: Sequence[int]) -> Iterator[Callable[[], object]]:
    """Yield a call of a mixer at each length."""
    import torch

    from tasks.modeling.configuration import LimbeckEncoderConfig
    from tasks.modeling.mixers.mixers import mixer_of

    torch.manual_seed(0)
    config = LimbeckEncoderConfig(
        hidden_size=256,
        num_attention_heads=4,
        num_hidden_layers=1,
        mixer=mixer,
        mixer_kernels=31,
        mixer_features=64 if mixer == "favor" else None,
        max_position_embeddings=max(lengths),
    )
    found = mixer_of(config, 0).eval()
    with torch.no_grad():
        found.draw_weights(0.02)
    for length in lengths:
        yield partial(found, torch.randn(1, length, 256), torch.ones(1, length))


def peak_bytes(call: Callable[[], object]) -> int:
    """Return the most bytes that tensors take at once while something is called."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
        kept = call()  # so that the result is still there
    events: Any = seen.profiler
    taken = [event for event in events.kineto_results.events() if event.name() == "[memory]"]
    taken.sort(key=lambda event: event.start_ns())
    assert kept is not None
    return max(accumulate((event.nbytes() for event in taken), initial=0))


def slope_of(lengths: Sequence[int], seconds: Sequence[float]) -> float:
    """Return the slope of the line through the logarithms of lengths and seconds, by least squares."""
    places = [(math.log(length), math.log(one)) for length, one in zip(lengths, seconds, strict=True)]
    middle, height = (sum(values) / len(places) for values in zip(*places, strict=True))
    spread = sum((place - middle) ** 2 for place, _ in places)
    return sum((place - middle) * (value - height) for place, value in places) / spread


def print_growth(names: Sequence[str]) -> None:
    """Print one row of a table for each mixer or model type, as soon as it is measured. Raises ValueError for an
    unknown name."""
    from tasks.modeling.growing_models import CONFIGS

    unknown = [name for name in names if name not in (*MIXER_NAMES, *CONFIGS)]
    if unknown:
        raise ValueError(f"unknown mixer {unknown[0]!r}; legal are {', '.join([*MIXER_NAMES, *CONFIGS])}")
    columns = [*(f"{length} tokens, ms" for length in LENGTHS), f"slope from {SLOPE_FROM}", f"MB at {LENGTHS[-1]}"]
    print(f"| mixer or model | {' | '.join(columns)} |")
    print("|---" * (len(columns) + 1) + "|")
    for name in names:
        seconds, taken = measured_growth(name, LENGTHS)
        late = [(length, one) for length, one in zip(LENGTHS, seconds, strict=True) if length >= SLOPE_FROM]
        slope = slope_of(*zip(*late, strict=True))
        figures = [*(f"{1000 * one:.1f}" for one in seconds), f"{slope:.2f}", f"{taken / 1e6:.0f}"]
        print(f"| `{name}` | {' | '.join(figures)} |", flush=True)


if __name__ == "__main__":
    print_growth(sys.argv[1:] or MIXER_NAMES)
