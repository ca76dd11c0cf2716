"""The mutation suite as a test: nothing stale, nothing spurious."""

from __future__ import annotations

from pathlib import Path

import pytest

from flows.home import Home
from tests.suites.mutations import all_cases, knob_cases, make_bases
from tests.suites.planned import planned_bases


@pytest.fixture
def home(prefect_server: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    home = Home(tmp_path / "home").create()
    monkeypatch.setenv("LIMBECK_HOME", str(home.root))
    return home


def test_every_knob_re_runs_exactly_what_depends_on_it(home: Home, tmp_path: Path) -> None:
    own = make_bases(home, tmp_path)[1].run()
    cases = list(knob_cases(own))
    assert len(cases) > 100
    assert not [(case.what, case.note, case.stale, case.spurious) for case in cases if case.stale or case.spurious]


def test_knobs_of_recipes_that_are_only_planned_change_the_keys_of_their_own_stages(tmp_path: Path) -> None:
    quick = [
        base
        for base in planned_bases(Home(tmp_path / "home").create(), tmp_path / "made")
        if base.name in ("together", "sweep")
    ]
    cases = [case for base in quick for case in base.cases()]
    assert len(cases) >= 25
    assert not [(case.what, case.note, case.stale, case.spurious) for case in cases if case.stale or case.spurious]


@pytest.mark.slow
def test_everything_re_runs_exactly_what_depends_on_it(home: Home, tmp_path: Path) -> None:
    cases = all_cases(home, tmp_path)
    assert len(cases) >= 400
    assert not [(case.what, case.note, case.stale, case.spurious) for case in cases if case.stale or case.spurious]
