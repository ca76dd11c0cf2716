"""Promotion against a real registry: whoever promotes at the same time, the best eligible one ends as champion, and no
reader misses it."""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import pytest

from flows.run.opening import begin
from tasks.engine.environment import environment
from tasks.errors import LeaseLost, RegistryError
from tasks.gate import gate_inputs, unseen_rows
from tasks.gate.alias_decisions import decide_run, delete_here, promote_here, roll_back_here, under_lock
from tasks.gate.gate_inputs import GateInputs
from tasks.ports.store import folder as folder_store
from tasks.ports.store.folder import FolderStore
from tasks.ports.tracking.registry import STORE, Registry, RegistryState, missing
from tasks.ports.tracking.tracker import Tracker
from tasks.scoring import evaluation
from tests import postgres
from tests.contenders import candidate, judging_of, promote, register
from tests.forked import start_fork

ROOT = Path(__file__).resolve().parents[2]
ROUNDS = 12
SIZES = {"large": 300, "small": 200, "tiny": 100}
"""Sizes of the candidates that race; the smallest is preferred, and all answer alike."""


@dataclass
class Stage:
    """A registry to race on, and candidates that were uploaded once."""

    tracker: Tracker
    folder: Path
    known: dict[str, str] = field(default_factory=dict)
    judgings: dict[str, GateInputs] = field(default_factory=dict)

    def begin(self, name: str) -> dict[str, str]:
        """Register a champion and, behind it, everybody who wants its place."""
        numbers = {}
        for one, size in {"first": 1000, **SIZES}.items():
            judging = self.judgings.setdefault(one, judging_of(self.folder / one, candidate(one, size)))
            numbers |= register(self.tracker, name, judging, self.known)
        promote(self.tracker, self.folder / "store", name, self.judgings["first"], {"first": numbers["first"]})
        return numbers

    def champion(self, name: str) -> str:
        return str(self.tracker.client.get_model_version_by_alias(name, "champion").tags["candidate"])


@pytest.fixture(scope="session")
def database() -> Iterator[str]:
    """One PostgreSQL for all tests that need it."""
    if not postgres.is_here():
        pytest.skip(postgres.WHY_NOT)
    with postgres.postgres_server() as uri:
        yield uri


def stage(uri: str, folder: Path) -> Stage:
    tracker = Tracker(uri, folder / "mlartifacts", experiment=f"tiny/{folder.name}", run_name="race")
    tracker.open()
    return Stage(tracker, folder)


@pytest.fixture
def embedded(template: Path, tmp_path: Path) -> Iterator[Stage]:
    """MLflow's embedded database, in memory where that can be: hundreds of commits would wait for the disk
    otherwise."""
    quick = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="limbeck-race-", dir=quick) as place:
        shutil.copyfile(template, Path(place) / "mlflow.db")
        found = stage(f"sqlite:///{place}/mlflow.db", tmp_path)
        yield found
        found.tracker.close("FINISHED")


@pytest.fixture(params=["sqlite", "postgres"])
def anywhere(
    request: pytest.FixtureRequest, template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Stage]:
    monkeypatch.setattr(folder_store, "POLL", 0.01)
    if request.param == "sqlite":
        yield request.getfixturevalue("embedded")
        return
    found = stage(request.getfixturevalue("database"), tmp_path)
    yield found
    found.tracker.close("FINISHED")


# --- races ------------------------------------------------------------------------------------------------------------


class Contender:
    """A process that promotes when it is told to."""

    def __init__(self, folder: Path) -> None:
        reader, writer = os.pipe()
        answers, answering = os.pipe()
        self.stdin, self.stdout = os.fdopen(writer, "w"), os.fdopen(answers)
        with os.fdopen(reader, "rb") as orders, os.fdopen(answering, "wb") as out, (folder / "log").open("wb") as log:
            known = environment(1) | {"PYTHONPATH": str(ROOT)}
            self.fork = start_fork("tests.contenders", folder, (orders, out, log), known)


@pytest.fixture(scope="session")
def others(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Contender]]:
    """Two processes that promote when they are told to; to begin takes them a second, so they stay."""
    started = [Contender(tmp_path_factory.mktemp("contender")) for _ in range(2)]
    for one in started:
        assert one.stdout.readline() == "ready\n"
    yield started
    for one in started:
        one.stdin.close()
        assert one.fork.wait() == 0


def race(stage: Stage, name: str, numbers: dict[str, str], waits: dict[str, float], others: list[Contender]) -> None:
    """Let everybody promote at once: as many as there are ``others`` in processes of their own, the rest in threads of
    this one."""
    away, here = list(waits)[: len(others)], list(waits)[len(others) :]
    for process, one in zip(others, away, strict=True):
        order = {
            "uri": stage.tracker.uri,
            "folder": str(stage.folder / one),
            "store": str(stage.folder / "store"),
            "name": name,
            "candidate": one,
            "size": SIZES[one],
            "version": numbers[one],
            "wait": waits[one],
        }
        print(json.dumps(order), file=process.stdin, flush=True)
    with ThreadPoolExecutor(len(waits)) as pool:
        done = [
            pool.submit(
                promote,
                stage.tracker,
                stage.folder / "store",
                name,
                stage.judgings[one],
                {one: numbers[one]},
                waits[one],
            )
            for one in here
        ]
        for one in done:
            one.result()
    for process in others:
        assert process.stdout.readline() == "done\n"


@contextmanager
def reading(stage: Stage, name: str) -> Iterator[list[str]]:
    """Ask for the champion all the while; yield who was seen, and fail if there was nobody."""
    seen: list[str] = []
    trouble: list[BaseException] = []
    over = threading.Event()

    def read() -> None:
        try:
            while not over.wait(0.04):
                seen.append(stage.champion(name))
        except BaseException as error:
            trouble.append(error)

    thread = threading.Thread(target=read)
    thread.start()
    try:
        yield seen
    finally:
        over.set()
        thread.join()
        assert not trouble, f"a reader missed the champion: {trouble[0]}"


def orders(rounds: int) -> Iterator[dict[str, float]]:
    """Yield who waits how long between reading and writing, in another order each time."""
    rng = random.Random(0)
    for _ in range(rounds):
        yield dict(zip(rng.sample(sorted(SIZES), len(SIZES)), rng.sample([0.0, 0.02, 0.05], len(SIZES)), strict=True))


def test_whoever_promotes_at_the_same_time_the_best_ends_as_champion(anywhere: Stage, others: list[Contender]) -> None:
    numbers = anywhere.begin("tiny")
    with reading(anywhere, "tiny") as seen:
        for round_, waits in enumerate(orders(ROUNDS)):
            race(anywhere, "tiny", numbers, waits, others[: 1 + round_ % 2])
            assert anywhere.champion("tiny") == "tiny", f"round {round_}: {waits}"
            anywhere.tracker.client.set_registered_model_alias("tiny", "champion", numbers["first"])
    assert {"first", "tiny"} <= set(seen) <= {"first", *SIZES}
    history = Registry(anywhere.tracker, "tiny").read().history
    assert [entry["n"] for entry in history] == list(range(1, 2 + ROUNDS * len(SIZES))), (
        "no decision is lost, and none has the number of another"
    )


def test_without_the_lock_the_wrong_one_wins(embedded: Stage) -> None:
    """The test of the test above: nobody is kept out, all read before the first writes, and the worst writes last."""
    numbers, order = embedded.begin("tiny"), ["tiny", "small", "large"]
    read, written = threading.Barrier(len(order)), {one: threading.Event() for one in order}

    def turn(one: str) -> str:
        def wait() -> None:
            read.wait(60)
            assert all(written[earlier].wait(60) for earlier in order[: order.index(one)])

        outcome = promote(embedded.tracker, None, "tiny", embedded.judgings[one], {one: numbers[one]}, wait)["words"][
            0
        ]["outcome"]
        written[one].set()
        return str(outcome)

    with ThreadPoolExecutor(len(order)) as pool:
        assert list(pool.map(turn, order)) == ["champion"] * 3 and embedded.champion("tiny") == "large"


# --- what is written down ---------------------------------------------------------------------------------------------


def decide(stage: Stage, name: str, one: str, size: int, number: str | None = None, **changes: Any) -> dict[str, Any]:
    """Register a candidate, unless it has a number, and decide on it."""
    judging = judging_of(stage.folder / f"{one}-{len(list(stage.folder.iterdir()))}", candidate(one, size), **changes)
    numbers = {one: number} if number else register(stage.tracker, name, judging)
    return promote(stage.tracker, stage.folder / "store", name, judging, numbers)


def here(stage: Stage, name: str, work: Callable[[Registry], Any]) -> Any:
    """Do something by hand, under the lock."""
    return asyncio.run(under_lock(FolderStore(stage.folder / "store"), stage.tracker, name, work))


def standing(stage: Stage, name: str) -> RegistryState:
    return Registry(stage.tracker, name).read()


WORSE = {"second": tuple(range(30))}


def test_a_story_of_runs_and_people(embedded: Stage) -> None:
    """First champion, refusal, takeover, rollback, promotion by hand; every step is in the history, and refused ones
    too."""
    assert decide(embedded, "m", "first", 300)["champion"] == {"version": "1", "candidate": "first"}
    refused = decide(embedded, "m", "second", 200, wrong=WORSE)
    assert refused["words"][0]["outcome"] == "refused" and "certainly worse" in refused["words"][0]["reason"]
    assert refused["aliases"] == {"champion": "1", "champion-fast": "1", "champion-small": "2"}
    assert decide(embedded, "m", "third", 100)["aliases"]["previous"] == "1"
    found = standing(embedded, "m")
    assert found.aliases == {"champion": "3", "previous": "1", "champion-fast": "1", "champion-small": "3"}
    assert found.versions["3"]["gate.replaced"] == "1" and found.versions["2"]["promotion.outcome"] == "refused"
    assert (
        found.versions["2"]["gate.verdict"] == "ACCEPT" and "certainly worse" in found.versions["2"]["promotion.reason"]
    )

    back = here(embedded, "m", lambda registry: roll_back_here(registry, "it answers too slowly"))
    assert back["aliases"] == {"champion": "1", "previous": "3", "champion-fast": "1", "champion-small": "2"}
    again = decide(embedded, "m", "third", 100, number="3")
    assert again["aliases"]["champion"] == "1" and "it was rolled back manually" in again["words"][0]["reason"]
    hand = here(embedded, "m", lambda registry: promote_here(registry, "2", "champion", False, ""))
    assert hand["words"][0]["outcome"] == "refused" and hand["moves"] == {}
    forced = here(
        embedded, "m", lambda registry: promote_here(registry, "2", "champion", True, "smaller is what counts")
    )
    assert forced["aliases"]["champion"] == "2" and forced["aliases"]["previous"] == "1"

    history = standing(embedded, "m").history
    assert [entry["kind"] for entry in history] == ["run", "run", "run", "rollback", "run", "promote", "promote"]
    assert (
        [entry["n"] for entry in history] == list(range(1, 8))
        and history[-1]["because"] == "smaller is what counts"
        and history[-1]["forced"]
    )
    assert history[2]["moves"] == {"previous": [None, "1"], "champion": ["1", "3"], "champion-small": ["2", "3"]}
    assert missing(standing(embedded, "m")) == {}


def test_a_run_that_is_repeated_writes_nothing(embedded: Stage) -> None:
    assert decide(embedded, "m", "first", 300)["news"]
    decide(embedded, "m", "first", 300, number="1")
    before = standing(embedded, "m")
    again = decide(embedded, "m", "first", 300, number="1")
    assert again["moves"] == {} and not again["news"], "who was refused is not told a second time"
    assert standing(embedded, "m") == before and len(before.history) == 1


def test_other_rows_make_a_challenger_and_a_person_decides(embedded: Stage) -> None:
    decide(embedded, "m", "first", 300)
    found = decide(embedded, "m", "other", 200, said="sentence")
    assert found["aliases"]["challenger"] == "2" and found["aliases"]["champion"] == "1"
    assert "evaluated on other rows" in found["words"][0]["reason"]
    hand = here(embedded, "m", lambda registry: promote_here(registry, None, "champion", False, ""))
    assert hand["aliases"]["champion"] == "2" and "challenger" not in hand["aliases"]


def test_a_champion_that_knew_the_rows_beats_nobody_by_that(embedded: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """It learned from half of the rows that judge; on the other half its challenger is as good. With too few of those a
    person decides."""
    known = [f"Text  {number}" for number in range(40)]
    decide(embedded, "m", "first", 300, wrong={"first": tuple(range(40, 50))}, learned=known)
    honest = {"wrong": {"second": (*range(40), *range(40, 50))}}
    few = decide(embedded, "m", "second", 200, **honest)
    assert few["aliases"]["challenger"] == "2" and few["aliases"]["champion"] == "1"
    assert (
        "of 80, 40 have predictions of both and are in the training data of neither, and 200 are needed; decide "
        "manually" in few["words"][0]["reason"]
    )
    monkeypatch.setattr(unseen_rows, "FEWEST", 30)
    enough = decide(embedded, "m", "third", 100, wrong={"third": honest["wrong"]["second"]})
    assert enough["champion"]["candidate"] == "third" and "on 40 of 80 rows" in enough["words"][0]["reason"]


def test_a_champion_that_does_not_say_what_it_learned_from_leaves_the_decision_to_a_person(
    embedded: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As releases before digests registered it: on rows that it may have learned, it beat every honest challenger, or a
    smaller one that was as good there took over."""
    with monkeypatch.context() as before:
        before.setattr(gate_inputs, "replace", lambda rows, **digests: rows)
        decide(embedded, "m", "first", 300)
    assert not (evaluation_in(embedded, "1") / evaluation.LEARNED).exists()
    found = decide(embedded, "m", "second", 200)
    assert found["aliases"]["challenger"] == "2" and found["aliases"]["champion"] == "1"
    assert found["words"][0]["reason"] == (
        "not compared with the champion, version 1: the champion's training rows are not recorded, as by an older "
        "release, and may be among the evaluation rows; decide manually (limbeck promote)"
    )
    goal = {"criteria": [{"metric": "accuracy", "relative_to": "champion", "test": "superiority", "tolerance": 0.01}]}
    third = decide(embedded, "m", "third", 100, **goal)
    assert third["decisions"]["third"].reasons[0].endswith("and may be among the evaluation rows: not met")
    hand = here(embedded, "m", lambda registry: promote_here(registry, "2", "champion", False, ""))
    assert hand["aliases"]["champion"] == "2"


def test_nobody_takes_over_from_a_champion_whose_evaluation_was_swapped_for_a_worse_one(embedded: Stage) -> None:
    """Its own checksum fits: whoever can write the model's files writes both. The registry's digest does not."""
    decide(embedded, "m", "first", 300)
    champion = evaluation_in(embedded, "1")
    worse = judging_of(embedded.folder / "worse", candidate("first", 300), wrong={"first": range(40)}).evaluation(
        "first"
    )
    for file in champion.iterdir():
        file.write_bytes((worse / file.name).read_bytes())
    found = decide(embedded, "m", "second", 200, wrong=WORSE)
    assert found["aliases"]["champion"] == "1" and found["aliases"]["challenger"] == "2"
    assert "m version 1 differs from the registered one: its files were changed" in found["words"][0]["reason"]
    hand = here(embedded, "m", lambda registry: promote_here(registry, "2", "champion", False, ""))
    assert hand["words"][0]["outcome"] == "refused" and "its files were changed" in hand["words"][0]["reason"]
    forced = here(embedded, "m", lambda registry: promote_here(registry, "2", "champion", True, "looked at it"))
    assert forced["aliases"]["champion"] == "2"


def evaluation_in(stage: Stage, number: str) -> Path:
    """Return the folder of a version's evaluation in the artifact store."""
    model = stage.tracker.find_version("m", number).source.removeprefix("models:/")
    return Path(urlparse(stage.tracker.client.get_logged_model(model).artifact_location).path) / "evaluation"


def test_a_goal_relative_to_the_champion_is_held_against_who_is_champion_then(embedded: Stage) -> None:
    """The verdict follows the registry: what was accepted when nobody was there misses its goal once somebody is."""
    goal = {"criteria": [{"metric": "accuracy", "relative_to": "champion", "test": "superiority", "tolerance": 0.01}]}
    first = decide(embedded, "m", "first", 300, **goal)
    assert first["decisions"]["first"].reasons[0] == "accuracy: no champion yet: met"
    second = decide(embedded, "m", "second", 200, wrong={"second": ()}, **goal)
    assert second["decisions"]["second"].verdict == "ACCEPT" and second["champion"] == {
        "version": "2",
        "candidate": "second",
    }
    third = decide(embedded, "m", "third", 100, **goal)
    assert third["decisions"]["third"].verdict == "REGRESSION" and third["aliases"]["champion"] == "2"
    tags = standing(embedded, "m").versions["3"]
    assert (
        tags["gate.verdict"] == "REGRESSION"
        and tags["gate"] == "refused"
        and "to champion v2's" in json.loads(tags["gate.reasons"])[0]
    )


def test_manual_and_never(embedded: Stage) -> None:
    assert decide(embedded, "m", "first", 300, promote="never")["aliases"] == {}
    assert decide(embedded, "m", "second", 200, promote="manual")["aliases"] == {"challenger": "2"}
    hand = here(embedded, "m", lambda registry: promote_here(registry, None, "champion", False, ""))
    assert hand["aliases"] == {"champion": "2", "champion-small": "2", "champion-fast": "2"}
    with pytest.raises(RegistryError, match="has no challenger; name a version, it has 1, 2"):
        here(embedded, "m", lambda registry: promote_here(registry, None, "champion", False, ""))


def test_an_aliased_version_is_not_deleted_and_one_that_vanished_is_missed(embedded: Stage) -> None:
    decide(embedded, "m", "first", 300)
    decide(embedded, "m", "second", 200)
    with pytest.raises(RegistryError, match="champion-fast, previous: a version with an alias cannot be deleted"):
        here(embedded, "m", lambda registry: delete_here(registry, "1", ""))
    decide(embedded, "m", "third", 400)
    assert here(embedded, "m", lambda registry: delete_here(registry, "3", "of no use"))["candidate"] == "third"
    assert (
        list(standing(embedded, "m").versions) == ["2", "1"] and standing(embedded, "m").history[-1]["kind"] == "delete"
    )
    embedded.tracker.client.delete_model_version("m", "2")  # MLflow lets it go
    assert missing(standing(embedded, "m")) == {"champion": "2", "champion-small": "2"}
    assert here(embedded, "m", lambda registry: roll_back_here(registry, ""))["aliases"]["champion"] == "1"


@pytest.mark.parametrize(
    "work",
    [
        lambda registry: roll_back_here(registry, ""),
        lambda registry: promote_here(registry, "1", "champion", False, ""),
    ],
)
def test_a_model_that_is_not_there_is_one_sentence(embedded: Stage, work: Callable[[Registry], Any]) -> None:
    decide(embedded, "m", "first", 300)
    with pytest.raises(RegistryError, match="there is no registered model 'other'; known are m"):
        here(embedded, "other", work)
    with pytest.raises(RegistryError, match="no alias previous"):
        here(embedded, "m", lambda registry: roll_back_here(registry, ""))


def promote_under(stage: Stage, store: Path, number: str) -> Any:
    return asyncio.run(
        under_lock(
            FolderStore(store),
            stage.tracker,
            "m",
            lambda registry: promote_here(registry, number, "champion", True, ""),
        )
    )


def test_a_promotion_under_another_store_s_lock_is_refused_and_moves_nothing(embedded: Stage) -> None:
    """Two homes with one MLflow and a store each: their locks do not keep each other out."""
    decide(embedded, "m", "first", 300)
    decide(embedded, "m", "second", 200)
    before, own, other = (
        standing(embedded, "m"),
        FolderStore(embedded.folder / "store").identity(),
        FolderStore(embedded.folder / "other").identity(),
    )
    assert before.store == own != other
    said = (
        rf"^m uses the lock of store {own}, but LIMBECK_STORE names the store {other} .*; set "
        rf"LIMBECK_STORE"
    )
    with pytest.raises(RegistryError, match=said):
        promote_under(embedded, embedded.folder / "other", "1")
    with pytest.raises(RegistryError, match="delete the tag limbeck.store"):
        begin(embedded.tracker, FolderStore(embedded.folder / "other"), "m")
    begin(embedded.tracker, FolderStore(embedded.folder / "store"), "m")
    assert standing(embedded, "m") == before


def test_a_store_that_was_moved_is_the_same_and_a_deleted_tag_lets_another_in(embedded: Stage) -> None:
    decide(embedded, "m", "first", 300)
    decide(embedded, "m", "second", 200)
    shutil.copytree(embedded.folder / "store", embedded.folder / "moved")
    assert promote_under(embedded, embedded.folder / "moved", "1")["moves"]
    embedded.tracker.client.delete_registered_model_tag("m", STORE)
    assert promote_under(embedded, embedded.folder / "other", "2")["moves"]
    assert standing(embedded, "m").store == FolderStore(embedded.folder / "other").identity()
    with pytest.raises(RegistryError, match="LIMBECK_STORE"):
        decide(embedded, "m", "third", 100)


def test_a_model_of_before_is_bound_by_its_next_decision(embedded: Stage) -> None:
    decide(embedded, "m", "first", 300)
    embedded.tracker.client.delete_registered_model_tag("m", STORE)
    assert decide(embedded, "m", "second", 200)["moves"] and standing(embedded, "m").store


class Lost:
    """A lease that another worker took over after so many questions."""

    def __init__(self, answers: int) -> None:
        self.answers = answers

    def assert_held(self) -> None:
        self.answers -= 1
        if self.answers < 0:
            raise LeaseLost("taken over")


@pytest.mark.parametrize("answers", [0, 1, 3, 5, 6, 7])
def test_who_lost_the_lock_writes_nothing_more_and_the_next_decision_mends_it(embedded: Stage, answers: int) -> None:
    decide(embedded, "m", "first", 300)
    judging = judging_of(embedded.folder / "late", candidate("late", 200))
    numbers = register(embedded.tracker, "m", judging)
    with pytest.raises(LeaseLost):
        decide_run(judging, Registry(embedded.tracker, "m", Lost(answers)), numbers, "run")
    assert embedded.champion("m") in ("first", "late"), "there is a champion at every moment"
    promote(embedded.tracker, embedded.folder / "store", "m", judging, numbers)
    assert embedded.champion("m") == "late" and standing(embedded, "m").aliases["previous"] == "1"


def test_without_a_lock_nothing_is_written(embedded: Stage) -> None:
    with pytest.raises(RegistryError, match="only under its lock"):
        Registry(embedded.tracker, "m").move("champion", "1")


def test_the_janitor_leaves_alone_what_a_version_points_at(embedded: Stage) -> None:
    client = embedded.tracker.client
    begun = [client.create_logged_model(embedded.tracker.experiment_id, name=name) for name in ("kept", "given-up")]
    embedded.tracker.require_registered("m", {})
    client.create_model_version("m", f"models:/{begun[0].model_id}")
    client.set_registered_model_alias("m", "champion", "1")
    assert embedded.tracker.drop_pending(-60) == ["given-up"]
    assert client.get_logged_model(begun[0].model_id).name == "kept"
