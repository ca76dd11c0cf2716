"""Which shapes of a large space are scored: generations of them by NSGA-II, of a seed, towards better scores, lower
latencies and fewer bytes.

Paper: Deb et al. 2002, "A fast and elitist multiobjective genetic algorithm: NSGA-II", IEEE Transactions on
Evolutionary Computation 6; as Optuna has it (Akiba et al. 2019, arXiv:1907.10902), asked and told. A study is a pure
function of its seed, the shapes and their scores: it is not stored, and goes the same way again after a stop.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Any, Literal

from tasks.errors import RecipeError
from tasks.recipe.makers.search import Evolution
from tasks.results.search import JudgedShape

GOALS: tuple[Literal["maximize", "minimize"], ...] = ("maximize", "minimize", "minimize")
"""Of the score, the latency and the bytes."""
ASKED_FOR_ONE = 50
"""Trials for each place of a generation before it stays empty: those that fit no budget are asked and not scored."""
SIZES = ("layers", "width", "neurons")


def require_optuna(fitting: int, most: int) -> None:
    """Raise RecipeError for a space that has to be searched where Optuna is not installed."""
    if fitting > most and find_spec("optuna") is None:
        raise RecipeError(
            f"{fitting:,} shapes fit, and search.evolution scores at most {most:,} without choosing, which needs the "
            f"package optuna, which is not installed: pip install 'limbeck[search]', name fewer sizes in search.space, "
            f"or set ranking: halving"
        )


class ShapeStudy:
    """A study of the shapes that fit a budget: ``next_generation`` returns shapes to be scored, and ``tell`` takes
    their scores."""

    def __init__(self, shapes: Sequence[JudgedShape], knobs: Evolution, seed: int) -> None:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self.shapes = {place_in_space(one): one for one in shapes}
        self.population = knobs.population
        axes = {name: sorted({sizes[place] for sizes in self.shapes}) for place, name in enumerate(SIZES)}
        self.axes: dict[str, optuna.distributions.BaseDistribution] = {
            name: optuna.distributions.IntDistribution(0, len(sizes) - 1) for name, sizes in axes.items()
        }  # places on an axis: neighbours are alike
        self.sizes_of_axes = axes
        self.failed = optuna.trial.TrialState.FAIL
        sampler = optuna.samplers.NSGAIISampler(population_size=knobs.population, seed=seed)
        self.study = optuna.create_study(directions=GOALS, sampler=sampler)
        self.scores: dict[str, float] = {}
        self.waiting: list[tuple[Any, JudgedShape]] = []

    def next_generation(self) -> list[JudgedShape]:
        """Return the shapes of the next generation that have no score yet, each once."""
        for _ in range(ASKED_FOR_ONE * self.population):
            if len(self.waiting) == self.population:
                break
            trial = self.study.ask(self.axes)
            shape = self.shapes.get(tuple(sizes[trial.params[name]] for name, sizes in self.sizes_of_axes.items()))
            if shape is None:
                self.study.tell(trial, state=self.failed)
            else:
                self.waiting.append((trial, shape))
        found = {one.name: one for _, one in self.waiting if one.name not in self.scores}
        return [*found.values()]

    def tell(self, scores: Mapping[str, float]) -> None:
        """Take the scores of the shapes of this generation, by name, and begin the next one."""
        self.scores.update(scores)
        for trial, shape in self.waiting:
            self.study.tell(trial, [self.scores[shape.name], float(shape.ms), float(shape.bytes)])
        self.waiting.clear()


def place_in_space(shape: JudgedShape) -> tuple[float, ...]:
    """Return the place of a shape in its space."""
    return float(shape.layers), float(shape.width), float(shape.neurons)
