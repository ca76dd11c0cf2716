"""Keys: the same for what cannot matter, different for what can."""

from __future__ import annotations

from pathlib import Path

import pytest

from tasks.errors import StoreError
from tasks.ports import fingerprint
from tasks.ports.fingerprint import code_digest, differences, key_of

HELPER = "def double(x):\n    '''Twice.'''\n    return x + x  # a reason\n\ndef unused():\n    return 1\n"
MAIN = "from tasks.helper import double\nfrom tasks.family import KINDS\n\ndef door(kind, x):\n    return KINDS[kind](double(x))\n"
FAMILY = "def first(x):\n    return x\n\ndef second(x):\n    return -x\n\nKINDS = {'first': first, 'second': second}\n"


@pytest.fixture
def digest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Digest a small package of ours after edits."""
    (tmp_path / "tasks").mkdir()

    def of(choice: str = "first", **edits: str) -> str:
        for name, source in {"helper": HELPER, "main": MAIN, "family": FAMILY, **edits}.items():
            (tmp_path / "tasks" / f"{name}.py").write_text(source)
        monkeypatch.setattr(fingerprint, "ROOT", tmp_path)
        forget()
        return code_digest([("tasks.main", "door")], {choice})

    yield of
    forget()


def forget() -> None:
    """Let the sources be read again, as a new process would."""
    for known in (fingerprint.sources, fingerprint.sources_sha256, fingerprint.load_module):
        known.cache_clear()


def test_syntax_is_read_once_while_no_source_has_changed(digest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LIMBECK_HOME", str(tmp_path / "home"))
    read = []
    monkeypatch.setattr(fingerprint, "read_digest", lambda *asked, real=fingerprint.read_digest: (read.append(asked), real(*asked))[1])
    first = digest()
    forget()
    assert code_digest([("tasks.main", "door")], {"first"}) == first and len(read) == 1
    code_digest([("tasks.main", "door")], {"second"})
    assert digest(helper=HELPER.replace("x + x", "2 * x + 1")) != first and len(read) == 3


def test_comments_docstrings_and_formatting_are_free(digest) -> None:
    assert digest() == digest(helper="def double( x ):\n\n    # another reason\n    return (x+x)\n\ndef unused():\n    return 1\n")


def test_a_called_helper_counts(digest) -> None:
    assert digest() != digest(helper=HELPER.replace("x + x", "2 * x + 1"))


def test_what_cannot_be_reached_is_free(digest) -> None:
    assert digest() == digest(helper=HELPER.replace("return 1", "return 2"))


def test_of_a_family_only_the_chosen_entry_counts(digest) -> None:
    edited = FAMILY.replace("return -x", "return x * 3")
    assert digest("first") == digest("first", family=edited)
    assert digest("second") != digest("second", family=edited)


def test_a_constant_counts_also_where_several_are_bound_at_once(digest) -> None:
    several = "SMALL, (LARGE, HUGE) = 1, (2, 3)\n\ndef double(x):\n    return x * LARGE\n"
    assert digest(helper=several) != digest(helper=several.replace("(2, 3)", "(4, 3)"))


def test_keys_ignore_order_and_the_type_of_whole_numbers() -> None:
    assert key_of({"a": 1, "b": 2.5}) == key_of({"b": 2.5, "a": 1.0})


@pytest.mark.parametrize("bad", [float("nan"), {1, 2}, object()])
def test_a_key_that_cannot_be_computed_is_an_error(bad: object) -> None:
    with pytest.raises(StoreError, match="cannot be computed"):
        key_of({"a": bad})


def test_differences_name_the_field() -> None:
    assert list(differences({"knobs": {"steps": 2, "same": 1}}, {"knobs": {"steps": 1, "same": 1}})) == ["knobs.steps: 1 → 2"]
