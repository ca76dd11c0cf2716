"""The benchmark suite measures what it says. Nothing here asserts a time."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from tasks.training.data.batches import plan
from tests.benchmarks.measure import Figure, Lap, interleave
from tests.benchmarks.results import file_of, keep_results, kept_results, slower_lines
from tests.benchmarks.sentences import MEAN, sample, sample_lengths, split

ROOT = Path(__file__).resolve().parents[2]


def test_a_sample_is_as_long_as_the_population_and_pads_as_little_as_an_epoch() -> None:
    assert pytest.approx(13.32, abs=0.01) == MEAN
    for batches in (20, 25):
        lengths = sample_lengths(batches, 32)
        assert abs(lengths.mean() / MEAN - 1) < 0.01
        padded = [lengths[batch].max() * len(batch) for batch in plan(lengths, size=32, tokens=8192, seed=0, epoch=0)]
        assert np.mean(padded) == pytest.approx(436, rel=0.02)  # what a whole epoch of SST-2 computes


def test_a_sample_is_whole_sentences() -> None:
    sentences = split(sample(2, 8))
    assert len(sentences) == 16 and all(
        tokens[0] == 101 and tokens[-1] == 102 and 101 not in tokens[1:] for tokens in sentences
    )


def test_contestants_take_turns_after_one_warm_up() -> None:
    seen = []

    def of(name: str, seconds: float):
        def once() -> Lap:
            seen.append(name)
            return Lap(cpu=seconds * len(seen), wall=seconds, amount=2)

        return once

    contest = interleave({"slow": of("slow", 6.0), "fast": of("fast", 2.0)}, 3, tell=lambda _: None)
    assert seen == ["slow", "fast"] * 4
    figure = contest.figure("three times", of="fast", against="slow", target=3.5, clock="wall")
    assert (
        figure.ratios == [3.0] * 3
        and figure.met is False
        and figure.other["cpu"] == pytest.approx([6 * 3 / (2 * 4), 6 * 5 / (2 * 6), 6 * 7 / (2 * 8)])
    )
    assert Figure("", "", "", [1.0, 9.0, 2.0], "cpu", 2.0, at_most=True).met is True
    assert Figure("", "", "", [1.0], "cpu", None).met is None


@pytest.mark.slow
def test_every_contestant_learns_the_same_sentences() -> None:
    """A Trainer, tuned or not, and our loop pass every sentence of the sample once."""
    from tests.benchmarks.peers import BATCH, examples_of, label_loss, plain_loop, trainer_loop

    class Counting(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight, self.seen = torch.nn.Parameter(torch.ones(1)), 0

        def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor, labels: torch.Tensor):
            self.seen += int(attention_mask.sum()) if self.training else 0
            return type("Output", (), {"loss": self.weight.sum()})()

    examples = examples_of(split(sample(2, BATCH)))
    tokens = sum(len(example["input_ids"]) for example in examples)
    for contestant in (
        lambda model: trainer_loop(model, label_loss, examples),
        lambda model: trainer_loop(model, label_loss, examples, tuned=True),
        lambda model: plain_loop(model, label_loss, examples, 64),
        lambda model: plain_loop(model, label_loss, examples, 64, helped=True),
    ):
        model = Counting()
        lap = contestant(model)()
        assert model.seen == tokens and lap.amount == 2 and lap.wall > 0 and lap.tokens >= tokens
    assert torch.get_float32_matmul_precision() == "highest", "the help is for its own contestant alone"


def test_the_optimizer_of_published_code_takes_the_step_of_its_formula() -> None:
    """Adam without correction of its bias, decoupled decay, and a gradient of norm 1 at most."""
    from tests.benchmarks.peers import BertAdam

    weight = torch.nn.Parameter(torch.tensor([2.0, -1.0]))
    weight.grad = torch.tensor([3.0, 4.0])
    BertAdam([weight], lr=0.5).step()
    gradient = torch.tensor([0.6, 0.8])
    mean, square = 0.1 * gradient, 0.001 * gradient**2
    expected = torch.tensor([2.0, -1.0]) * (1 - 0.5 * 0.01) - 0.5 * mean / (square.sqrt() + 1e-6)
    assert torch.allclose(weight.detach(), expected, atol=1e-4)


def test_a_figure_per_padded_token_counts_tokens_and_not_batches() -> None:
    laps = {"short": Lap(cpu=1.0, wall=1.0, amount=2, tokens=100), "long": Lap(cpu=3.0, wall=3.0, amount=2, tokens=400)}
    contest = interleave({name: lambda lap=lap: lap for name, lap in laps.items()}, 2, tell=lambda _: None)
    assert contest.figure("", of="short", against="long", target=None).median == 3.0
    assert contest.figure("", of="short", against="long", target=None, per="tokens").median == 0.75


RESULT = {
    "benchmark": "limits",
    "threads": 1,
    "quick": False,
    "date": "2026-01-31",
    "machine": {"hardware": "AMD EPYC 9B45 x 2 cpu-avx512-amd", "cores": 2},
    "figures": [
        {
            "name": name,
            "of": "ours",
            "against": "theirs",
            "clock": "cpu",
            "median": median,
            "unit": unit,
            "at_most": False,
        }
        for name, median, unit in (("speed", 10.0, "×"), ("time", 2.0, " s"))
    ],
}


def with_medians(speed: float, time: float, **more: object) -> dict[str, object]:
    """Return the result with other medians."""
    figures = [figure | {"median": value} for figure, value in zip(RESULT["figures"], (speed, time), strict=True)]
    return {**RESULT, "figures": figures, **more}


def test_a_later_run_names_what_became_slower_by_more_than_a_tenth(tmp_path: Path) -> None:
    keep_results([RESULT], tmp_path, replace=False)
    (file,) = tmp_path.iterdir()
    assert file.name == "amd-epyc-9b45-x-2-cpu-avx512-amd-2-of-its-cores.json"
    assert slower_lines([with_medians(9.2, 2.1)], tmp_path) == []
    assert slower_lines([with_medians(20.0, 1.0)], tmp_path) == [], "faster is no news"
    assert slower_lines([with_medians(8.0, 2.5)], tmp_path) == [
        "speed (ours against theirs, cpu): 8×, and 10× on 2026-01-31",
        "time (ours against theirs, cpu): 2.5 s, and 2 s on 2026-01-31",
    ]
    for other in ({"quick": True}, {"threads": 4}, {"machine": {"hardware": "another", "cores": 2}}):
        assert slower_lines([with_medians(1.0, 9.0, **other)], tmp_path) == [], f"not comparable: {other}"


def test_kept_results_stay_until_they_are_replaced_on_purpose(tmp_path: Path) -> None:
    keep_results([RESULT, {**RESULT, "quick": True}], tmp_path, replace=False)
    keep_results([with_medians(9.5, 2.0)], tmp_path, replace=False)
    assert not slower_lines([with_medians(9.3, 2.0)], tmp_path) and slower_lines([with_medians(8.7, 2.0)], tmp_path)
    keep_results([with_medians(8.7, 2.0)], tmp_path, replace=True)
    assert not slower_lines([with_medians(8.7, 2.0)], tmp_path)
    assert len(kept_results(file_of(RESULT["machine"], tmp_path))) == 2


def test_a_benchmark_nobody_knows_is_one_sentence() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.benchmarks", "distil"], cwd=ROOT, capture_output=True, text=True
    )
    assert (
        done.returncode == 2
        and "unknown benchmark 'distil'; choose from limits" in done.stderr
        and "Traceback" not in done.stderr
    )


def test_a_place_that_is_not_there_is_refused_before_hours_are_spent(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "tests.benchmarks", "--json", str(tmp_path / "none" / "bench.json")]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and "there is no folder" in done.stderr and "Traceback" not in done.stderr


def test_what_was_measured_is_kept_when_a_later_benchmark_is_broken_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.benchmarks import __main__ as bench

    def run_apart(name: str, threads: int, asked: object) -> dict[str, object]:
        if name == "memory":
            raise KeyboardInterrupt
        return {**RESULT, "benchmark": name, "threads": threads, "figures": []}

    monkeypatch.setattr(bench, "run_apart", run_apart)
    words = ["limits", "exports", "memory", "--threads", "1", "--json", str(tmp_path / "bench.json")]
    monkeypatch.setattr(sys, "argv", ["bench", *words, "--results", str(tmp_path)])
    with pytest.raises(KeyboardInterrupt):
        bench.main()
    assert [each["benchmark"] for each in json.loads((tmp_path / "bench.json").read_text())] == ["limits", "exports"]
    assert [file.name for file in tmp_path.iterdir()] == ["bench.json"]


@pytest.mark.slow
def test_a_benchmark_ends_in_a_table_and_json(tmp_path: Path) -> None:
    words = [
        sys.executable,
        "-m",
        "tests.benchmarks",
        "limits",
        "--threads",
        "1",
        "--quick",
        "--json",
        str(tmp_path / "bench.json"),
        "--results",
        str(tmp_path / "results"),
    ]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    (result,) = json.loads((tmp_path / "bench.json").read_text())
    assert (
        "forward and backward" in done.stdout
        and result["threads"] == 1
        and {"hardware", "load", "libraries"} <= set(result["machine"])
    )
    assert kept_results(file_of(result["machine"], tmp_path / "results")) == [result] and result["quick"]
    assert all(0 < figure["median"] <= 1.2 for figure in result["figures"])
