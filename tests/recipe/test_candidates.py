"""The section ``candidates``: chains, what they are short for, and what is refused before anything runs."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from flows.branches.candidate import Candidate
from flows.branches.comparison import controls_of
from flows.branches.export import grids_of
from flows.run.forms import Changes
from flows.run.recipe_file import SHELF, load_recipe
from tasks.recipe.chains import depth_of, origins_of
from tasks.recipe.makers.candidate_knobs import CandidateKnobs
from tasks.recipe.recipe import Recipe
from tasks.results.roles import ROLES

CUT = {"name": "cut", "from": "teacher", "by": "layer-dropping", "drop": 2}
DISTILLED = {"name": "distilled", "from": "cut", "by": "distillation"}
PRUNED = {"name": "pruned", "from": "cut", "by": "neuron-pruning"}
TRIMMED = {"name": "trimmed", "from": "teacher", "by": "vocabulary-trimming"}
HALF = {"name": "half", "layers": 6, "start": "random"}


def recipe(*candidates: dict[str, Any], **sections: Any) -> Recipe:
    """Return a recipe of these candidates."""
    values = {"name": "x", "task": "sst2", "gate": {"split": "validation"}, "candidates": candidates}
    return Recipe.model_validate(values | sections)


def test_a_recipe_knows_its_candidates_before_it_runs() -> None:
    again = {**CUT, "name": "again", "from": "distilled", "drop": 3, "seeds": [2]}
    found = recipe(again, {**CUT, "seeds": [1, 2]}, DISTILLED, students=[HALF], layer_dropping={"drop": [1, 2]})
    planned = {one.name: one for one in found.planned}
    assert [*planned] == ["half", "top-1", "top-2", "again", "cut", "distilled"]
    assert {name: one.planned_role for name, one in planned.items() if one.planned_role == "student"} == {
        "half": "student",
        "distilled": "student",
    }
    assert [one.planned_seeds for one in planned.values()] == [(0,), (0,), (0,), (2,), (1, 2), (1, 2)]
    assert planned["top-1"].made_from == "pretrained" and planned["half"].made_from == "teacher"
    assert [one.name for one in origins_of(planned["again"], planned)] == ["distilled", "cut"]
    assert depth_of(planned["again"], planned, 12) == 7


@pytest.mark.parametrize("name", sorted(path.stem for path in SHELF.glob("*.yaml")))
def test_students_and_dropped_models_are_candidates_of_two_makers(name: str) -> None:
    """Nothing of a student is lost on the way: its stages have the keys that they had."""
    found = load_recipe(name)
    assert found.all_students[: len(found.students)] == found.students
    assert {one.planned_role for one in found.planned} <= set(ROLES)


def test_a_recipe_is_written_as_it_was_read() -> None:
    found = recipe(CUT, DISTILLED)
    written = found.model_dump(mode="json", exclude_unset=True)
    assert written["candidates"][0] == CUT and Recipe.model_validate(written) == found
    assert Recipe.model_validate(found.model_dump()) == found


def test_forms_offer_candidates_by_their_names_in_recipes() -> None:
    shown = str(Changes.model_json_schema())
    assert "'from'" in shown and "made_from" not in shown


@pytest.mark.parametrize(
    ("candidates", "said"),
    [
        ([{**CUT, "from": "b"}, {**DISTILLED, "name": "b"}], "made in a circle, cut from b from cut; let one of them"),
        ([{**CUT, "from": "cut"}], "made in a circle, cut from cut; let one of them be made from pretrained"),
        ([{**CUT, "from": "teachr"}], "made from 'teachr', which this recipe does not make; did you mean 'teacher'"),
        (
            [CUT, PRUNED | {"role": "step"}],
            "pruned is a step, and no candidate is made from it; name it as from: pruned",
        ),
        ([CUT, CUT], "candidate cut is called like another model of this recipe"),
        ([{**CUT, "name": "teacher"}], "candidate teacher is called like another model of this recipe"),
        ([{**CUT, "name": "half"}], "candidate half is called like another model of this recipe"),
        ([{**CUT, "by": "layer-droping"}], "by names the maker of a candidate, not 'layer-droping'; did you mean"),
        (
            [{"name": "cut", "from": "teacher"}],
            "not 'nothing'; legal are distillation, layer-dropping, vocabulary-trimming, neuron-pruning, width-pruning",
        ),
        (
            [{**CUT, "compared_to": ["haf"]}],
            "compared to 'haf', which is no other .*did you mean 'half'. legal are half",
        ),
        ([{**CUT, "compared_to": ["cut"]}], "compared to 'cut', which is no other candidate of this recipe"),
        ([{**CUT, "compared_to": ["half", "half"]}], "compared_to .* contain duplicates; list each once"),
        ([{**CUT, "compared_to": ["teacher"]}], "compared to the teacher, to which all candidates are; leave it out"),
        ([{**CUT, "seeds": [1, 1]}], r"seeds \[1, 1\] contain duplicates; list each once"),
        ([CUT, {**DISTILLED, "seeds": [3]}], r"has the seeds \[3\], and cut, which it is made from seed by seed"),
        ([{**DISTILLED, "from": "teacher"}], "distilled is a new student; give it a shape, for example"),
        ([CUT, {**DISTILLED, "shape": {"layers": 2}}], "its model is built already; leave shape and start out"),
        ([CUT, {**DISTILLED, "stages": ["general"]}], "general distillation begins with a new student"),
        ([CUT, {**DISTILLED, "stages": ["augmentation"]}], r"uses the stages \['augmentation'\], which the recipe"),
        ([CUT, {**DISTILLED, "intermediate": {"method": "replacing"}}], "whose layers were trained since; method"),
        (
            [{**DISTILLED, "from": "half", "intermediate": {"matching": {"layer_map": "kept"}}}],
            "starts from random, which has no layers of its teacher; use layer_map: uniform",
        ),
        (
            [{**DISTILLED, "from": "pretrained", "shape": {"layers": 6}, "start": "random"}],
            "made from the pretrained model, of whose layers start: random takes none",
        ),
        ([CUT, {**DISTILLED, "signal": "labels", "intermediate": {}}], "learns from labels alone, but has an inter"),
        ([{**TRIMMED, "of": ["corpus"]}], r"of: \[corpus\], and the recipe has no section corpus; add the section, or"),
        ([{**TRIMMED, "of": ["transfer", "corpus"]}], "has no section transfer and no section corpus; add one, or set"),
        ([{**CUT, "choose_by": "pearson"}], "cut.choose_by is pearson, and sst2 is a task of classification"),
        (
            [CUT, {**DISTILLED, "prediction": {"choose_by": "mse"}}],
            "candidates.distilled.prediction.choose_by is mse, and sst2",
        ),
    ],
)
def test_what_cannot_be_made_is_refused(candidates: list[dict[str, Any]], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        recipe(*candidates, students=[HALF])


def test_candidates_are_chosen_by_one_metric() -> None:
    """The gate compared an F1 of one candidate with the accuracy of another."""
    by_f1 = {**DISTILLED, "prediction": {"choose_by": "f1"}}
    told = (
        r"\(cut by accuracy and distilled by f1\), and candidates are compared by these scores; set the same choose_by"
    )
    of_mrpc = {"task": {"name": "mrpc", "pair": "b", "metrics": ["accuracy", "f1"], "headline": "accuracy"}}
    with pytest.raises(ValidationError, match=told):
        recipe(CUT, by_f1, **of_mrpc)
    assert recipe({**CUT, "choose_by": "f1"}, by_f1, **of_mrpc).planned, "one that both have is legal"


def copies_of_a_plan(count: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """Return how often a candidate is copied while a recipe of so many is read and planned."""
    copies, copy = list[str](), CandidateKnobs.model_copy

    def counted(self: CandidateKnobs, **given: Any) -> CandidateKnobs:
        copies.append(self.name)
        return copy(self, **given)

    cuts = [{**CUT, "name": f"cut-{number}"} for number in range(count)]
    further = [{**DISTILLED, "name": f"further-{number}", "from": f"cut-{number}"} for number in range(count)]
    with monkeypatch.context() as while_counting:
        while_counting.setattr(CandidateKnobs, "model_copy", counted)
        found = recipe(*cuts, *further)
        for one in found.planned:
            controls_of(found, one.name)
            grids_of(found, Candidate(one.name, "student", []))
        assert len(found.all_students) == count and not found.new_students
    return len(copies)


def test_candidates_are_copied_once_however_many_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [copies_of_a_plan(count, monkeypatch) for count in (2, 6)] == [4, 12]


def test_a_copy_of_a_recipe_has_its_own_candidates() -> None:
    found = recipe(CUT, DISTILLED)
    fewer = found.model_copy(update={"candidates": found.candidates[:1]})
    assert [[one.name for one in each.planned] for each in (found, fewer)] == [["cut", "distilled"], ["cut"]]
    fresh = Recipe.model_construct(**{name: getattr(found, name) for name in Recipe.model_fields})
    assert "planned" in found.__dict__ and "planned" not in fresh.__dict__
    assert found == fresh and "planned" not in found.model_dump() | found.key_values()
    assert found.model_dump_json() == fresh.model_dump_json()
