"""``python -m tests.benchmarks``: run benchmarks, print the table, write the JSON.

    make bench                       everything, one thread and four (over an hour)
    make bench BASE=folder ROWS=train.parquet       with a real encoder and rows: what speed costs in quality
    make bench MODEL=folder ROWS=dev.parquet LEARNED=train.parquet BENCH=shrinking-peers    other pruners, quantizers
    make bench RECIPE=file BENCH=type-peers                  students by task type, beside a Trainer with a live teacher
    make bench PEERS=1 RECIPE=file BENCH=library-peers       beside TextBrewer and torchdistill
    make bench MASKED_LM=folder SENTENCES=file.txt  with a real masked language model: how many substitutes agree
    make bench GPU=1 BENCH="gpu-tuning gpu-distilling"       the engine on a GPU
    make bench SHELF=tinybert-4 BENCH=end-to-end             a recipe from the command to the registry, 1 core and all
    make bench BENCH=distill-bert    one benchmark
    make bench BENCH=search-again    a search that is run again: seconds beyond its imports
    make bench QUICK=1               those of minutes, one thread, few rounds, to see that nothing has collapsed
    make bench KEEP=1                keep the results of this kind of machine in tests/benchmarks/results

Figures that became worse by more than 10 % than the kept ones of the same kind of machine are named.

Every benchmark runs in a process of its own, whose threads are set before torch is imported.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.benchmarks.results import FOLDER, keep_results, slower_lines, today

BENCHMARKS = {
    "limits": ("tests.benchmarks.limits", "limits"),
    "distill-bert": ("tests.benchmarks.distillation", "distill_bert"),
    "distill-small": ("tests.benchmarks.distillation", "distill_small"),
    "finetune": ("tests.benchmarks.distillation", "finetune"),
    "augmentation": ("tests.benchmarks.augmentation", "augmentation"),
    "exports": ("tests.benchmarks.exports", "exports"),
    "operations": ("tests.benchmarks.exports", "operations"),
    "memory": ("tests.benchmarks.memory", "memory"),
    "chain": ("tests.benchmarks.orchestration", "chain"),
    "search-again": ("tests.benchmarks.whole.search_again", "search_again"),
    "cold": ("tests.benchmarks.orchestration", "cold"),
    "sweep": ("tests.benchmarks.orchestration", "sweep"),
    "fleet": ("tests.benchmarks.fleet.measuring", "fleet"),
    "quality": ("tests.benchmarks.quality", "quality"),
    "gpu-tuning": ("tests.benchmarks.gpu.measuring", "gpu_tuning"),
    "gpu-distilling": ("tests.benchmarks.gpu.measuring", "gpu_distilling"),
    "shrinking-peers": ("tests.benchmarks.shrinking.peers", "shrinking_peers"),
    "type-peers": ("tests.benchmarks.types.peers", "type_peers"),
    "library-peers": ("tests.benchmarks.libraries.measuring", "library_peers"),
    "end-to-end": ("tests.benchmarks.whole.recipes", "end_to_end"),
}
WHOLE_PROCESSES = (
    "chain",
    "search-again",
    "cold",
    "sweep",
    "fleet",
    "quality",
    "gpu-tuning",
    "gpu-distilling",
    "end-to-end",
)
"""Benchmarks that choose their threads themselves, or whose threads do not matter."""
NEEDED = {
    "quality": ("BASE", "ROWS"),
    "shrinking-peers": ("MODEL", "ROWS", "LEARNED"),
    "type-peers": ("RECIPE",),
    "library-peers": ("RECIPE",),
    "end-to-end": ("LIMBECK_SHARED",),
    "gpu-tuning": ("GPU",),
    "gpu-distilling": ("GPU",),
}
"""What must be named in the environment for a benchmark that needs real models and rows, or a GPU."""
ROOT = Path(__file__).resolve().parents[2]
SHARED = ROOT.parent / "shared"
"""Where real rows and models are beside a checkout, unless LIMBECK_SHARED names another folder."""
ROUNDS, QUICK_ROUNDS = 5, 2
NOT_QUICK = ("operations", "memory", "cold", "sweep", "fleet", "quality", "end-to-end")
"""Benchmarks that a quick run leaves out, because fewer rounds do not make them short."""


def main() -> int:
    """Run what was asked for; non-zero if a target of the one-thread run was missed."""
    asked = options().parse_args()
    if SHARED.is_dir():
        os.environ.setdefault("LIMBECK_SHARED", str(SHARED))
    names = asked.names or [name for name in BENCHMARKS if not (lacking(name) or asked.quick and name in NOT_QUICK)]
    unknown = [name for name in names if name not in BENCHMARKS]
    if unknown:
        print(f"unknown benchmark {unknown[0]!r}; choose from {', '.join(BENCHMARKS)}", file=sys.stderr)
        return 2
    if asked.json and not asked.json.parent.is_dir():
        print(f"--json {asked.json}: there is no folder {asked.json.parent}; make it first", file=sys.stderr)
        return 2
    for name in names if asked.names or asked.quick else BENCHMARKS:
        if lacking(name):
            print(
                f"{name} is left out: it needs {' and '.join(f'{variable}=…' for variable in lacking(name))}",
                file=sys.stderr,
            )
    names = [name for name in names if not lacking(name)]
    if asked.inside:
        return run_here(names[0], asked)
    several = None if asked.threads or not asked.quick else 1
    asked.threads = asked.threads or [1, 4]
    wanted = [
        (name, threads) for name in names for threads in asked.threads[: 1 if name in WHOLE_PROCESSES else several]
    ]
    results: list[dict[str, Any]] = []
    for name, threads in wanted:
        result = run_apart(name, threads, asked)
        if result is not None:
            results.append(result)
            keep(results, asked.json)
    show(results)
    for line in slower_lines(results, asked.results):
        print(f"slower by more than 10 % than before: {line}")
    keep_results(results, asked.results, replace=asked.keep)
    first = [figure for result in results if result["threads"] == asked.threads[0] for figure in result["figures"]]
    return 0 if len(results) == len(wanted) and all(figure["met"] is not False for figure in first) else 1


def is_set(variable: str) -> bool:
    """Return whether a variable of the environment is set to something else than 0."""
    return os.environ.get(variable, "") not in ("", "0")


def lacking(name: str) -> list[str]:
    """Return the variables that a benchmark needs and has not got."""
    return [variable for variable in NEEDED.get(name, ()) if variable not in os.environ]


def options() -> argparse.ArgumentParser:
    """Return the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks", description="Ratios against what a user would pick instead, in one run."
    )
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"benchmarks to run: {', '.join(BENCHMARKS)} (default: all)"
    )
    parser.add_argument("--threads", type=int, nargs="+", help="threads of each run (default: 1 and 4; 1 with --quick)")
    parser.add_argument("--repeats", type=int, default=ROUNDS, help=f"interleaved rounds (default: {ROUNDS})")
    parser.add_argument(
        "--quick",
        action="store_true",
        default=is_set("QUICK"),
        help=f"{QUICK_ROUNDS} rounds, fewer contestants",
    )
    parser.add_argument("--json", type=Path, help="write everything that was measured here, after each benchmark")
    parser.add_argument("--results", type=Path, default=FOLDER, help="folder of kept results, one file a machine")
    parser.add_argument(
        "--keep", action="store_true", default=is_set("KEEP"), help="replace the kept results by those of this run"
    )
    parser.add_argument("--inside", type=Path, help=argparse.SUPPRESS)
    return parser


def run_apart(name: str, threads: int, asked: argparse.Namespace) -> dict[str, Any] | None:
    """Run one benchmark in a process of its own, with the environment that the product gives its engines."""
    from tasks.engine.environment import environment

    repeats = QUICK_ROUNDS if asked.quick else asked.repeats
    print(f"{name}, {threads} thread{'s' if threads > 1 else ''}, {repeats} rounds", file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder) / "answer.json"
        words = [
            sys.executable,
            "-m",
            "tests.benchmarks",
            name,
            "--threads",
            str(threads),
            "--repeats",
            str(repeats),
            "--inside",
            str(answer),
        ]
        started = time.monotonic()
        done = subprocess.run(
            [*words, *(["--quick"] if asked.quick else [])],
            env=os.environ | with_tests(environment(threads, "cuda" if is_set("GPU") else "cpu")),
            stdout=subprocess.DEVNULL,
        )
        if done.returncode or not answer.exists():
            print(f"{name} ended with status {done.returncode}", file=sys.stderr)
            return None
        result: dict[str, Any] = {**json.loads(answer.read_text()), "seconds": round(time.monotonic() - started)}
        print(f"  took {result['seconds'] / 60:.1f} minutes", file=sys.stderr, flush=True)
        return result


def with_tests(told: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of an engine, in which Python finds the benchmarks, too: engines find their sources
    alone."""
    return {**told, "PYTHONPATH": os.pathsep.join([told["PYTHONPATH"], str(ROOT)])}


def run_here(name: str, asked: argparse.Namespace) -> int:
    """Run one benchmark in this process and write what it found."""
    import torch
    import transformers

    from tests.benchmarks.setting import Setting, machine

    torch.set_num_threads(asked.threads[0])
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    module, function = BENCHMARKS[name]
    figures = getattr(importlib.import_module(module), function)(Setting(asked.repeats, asked.quick, asked.threads[0]))
    answer = {
        "benchmark": name,
        "threads": asked.threads[0],
        "quick": asked.quick,
        "date": today(),
        "machine": machine(),
        "figures": [figure.as_json() for figure in figures],
    }
    asked.inside.write_text(json.dumps(answer))
    return 0


def keep(results: list[dict[str, Any]], file: Path | None) -> None:
    """Write what has been measured so far, whole or not at all: a run of hours that is broken off loses only the
    benchmark it was in."""
    if file is None:
        return
    fresh = file.with_name(f".{file.name}.new")
    fresh.write_text(json.dumps(results, indent=1))
    fresh.replace(file)


def show(results: list[dict[str, Any]]) -> None:
    """Print the table."""
    from rich.console import Console
    from rich.table import Table

    table = Table("what", "of", "against", "threads", "clock", "median", "least to most", "wanted", "", box=None)
    for result in results:
        for figure in result["figures"]:
            verdict = {True: "met", False: "MISSED", None: ""}[figure["met"]]
            wanted = (
                ""
                if figure["target"] is None
                else f"{'at most' if figure['at_most'] else 'at least'} {figure['target']:g}"
            )
            table.add_row(
                figure["name"] + (f"\n  {figure['note']}" if figure["note"] else ""),
                figure["of"],
                figure["against"],
                str(result["threads"]),
                figure["clock"],
                f"{figure['median']:.3g}{figure['unit']}",
                f"{figure['least']:.3g} to {figure['most']:.3g}",
                wanted,
                verdict,
            )
    console = Console(width=200)
    console.print(table)
    if results:
        machine = results[-1]["machine"]
        libraries = ", ".join(f"{name} {version}" for name, version in machine["libraries"].items())
        console.print(
            f"{machine['hardware']}, load {machine['load'][0]:.1f}; {libraries}", markup=False, highlight=False
        )


if __name__ == "__main__":
    raise SystemExit(main())
