"""Tables of models that write, find hidden words or answer in chats, as strangers have them: what ``init`` makes of
each, and the sentence where it makes nothing."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from flows.recipes.checks import check_recipe
from flows.recipes.starter import Starter, Wishes, starter_recipe
from flows.run.recipe_file import recipe_of_text
from tasks.errors import DataError, ModelError
from tasks.preflight import check_students
from tasks.recipe.recipe import Recipe
from tests.task_types.chats.tables import chats, write_answering
from tests.task_types.masked_words.tables import write_encoder
from tests.task_types.next_words.tables import documents, write_decoder
from tests.task_types.seq2seq.tables import sentences, write_translator

DOCUMENTS = documents(60)
CHATS = chats(60)
SOURCES, TARGETS = sentences(60)


def lines_of(texts: Sequence[str]) -> str:
    return "".join(f"{text}\n" for text in texts)


def objects(rows: Sequence[Any]) -> str:
    return lines_of([json.dumps(row) for row in rows])


def pairs(targets: Sequence[Any], source: str = "source", target: str = "target") -> str:
    return objects([{source: one, target: other} for one, other in zip(SOURCES, targets, strict=True)])


def spoken_as(user: str, assistant: str) -> list[dict[str, Any]]:
    names = {"user": user, "assistant": assistant}
    return [{"messages": [{**one, "role": names.get(one["role"], one["role"])} for one in chat]} for chat in CHATS]


def begun(folder: Path, files: dict[str, str], task: str | None = None, **wishes: Any) -> tuple[Recipe, Starter]:
    """Return the recipe that ``init`` writes for a folder, or for its only file, and that with its notes."""
    folder.mkdir(exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8", errors="surrogatepass")
    source = folder / next(iter(files)) if len(files) == 1 else folder
    made = starter_recipe(str(source), folder / "mine.yaml", Wishes(task=task, **wishes))
    return recipe_of_text(made.text, source), made


@pytest.mark.parametrize(
    ("files", "task", "sentence"),
    [
        ({"a.txt": ""}, None, "a.txt has no rows; name a table with rows"),
        ({"a.jsonl": ""}, None, "a.jsonl has no rows; name a table with rows"),
        ({"a.txt": "  \n\t\n" * 30}, None, "a.txt has no line with a text"),
        ({"a.txt": "  \n\t\n" * 30}, "next-words", "no column of text holds texts, which is what next-words learns"),
        ({"a.txt": lines_of([f"word {one}" for one in range(60)])}, None, "--task next-words or --task masked-words"),
        ({"a.jsonl": objects([{"text": one} for one in range(60)])}, "masked-words", "no column of text holds texts"),
        ({"a.txt": "a b\n\x00\n"}, None, "a.txt is not a text file, or in UTF-16 without a mark"),
        (
            {"a.jsonl": f'{objects([{"text": DOCUMENTS[0]}])}{{"text": "ha\n'},
            None,
            "a.jsonl, line 2 is not JSON: Invalid control character at character 13; correct it",
        ),
        ({f"{one}.txt": one for one in "abcdefgh"}, None, "found a.txt, b.txt, c.txt, d.txt, e.txt and 3 more; write"),
        ({"a.txt": "a", "b.csv": "b"}, None, "found a.txt, b.csv; name one of them in place of the folder"),
        ({"a.jsonl": objects([{"text": one} for one in DOCUMENTS])}, "chats", "lists of messages, each with a role"),
        (
            {"a.jsonl": objects([{"messages": [chat]} for chat in CHATS])},
            "chats",
            "lists of messages, each with a role",
        ),
        ({"a.jsonl": pairs(TARGETS, "de", "en")}, "seq2seq", "by --task seq2seq --text COLUMN --label COLUMN"),
        ({"a.jsonl": pairs([None] * 60)}, "seq2seq", "'target' is empty"),
        ({"a.jsonl": pairs(list(range(60)))}, "seq2seq", "60 different values, which fit no seq2seq"),
    ],
)
def test_data_without_a_recipe_is_one_sentence(
    files: dict[str, str], task: str | None, sentence: str, tmp_path: Path
) -> None:
    with pytest.raises(DataError) as refused:
        begun(tmp_path / "given", files, task)
    assert sentence in str(refused.value) and "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("files", "note"),
    [
        ({"a.txt": DOCUMENTS[0].replace("\n", " ")}, "a.txt has one document, and one at least is held back"),
        ({"a.txt": lines_of([DOCUMENTS[0].replace("\n", " ")] * 60)}, "1 of its 60 rows are not contained in another"),
        (
            {"a.jsonl": objects([{"text": one} for one in [*DOCUMENTS, "a\x00b"]])},
            "row 61: .* contains the character NUL",
        ),
        ({"a.jsonl": objects([{"text": one} for one in [*DOCUMENTS, " "]])}, "left out .* row 61: the text in column"),
        (
            {f"train-0000{one}-of-00002.jsonl": objects([{name: DOCUMENTS[0]}]) for one, name in enumerate(["a", "b"])},
            "train-00001-of-00002.jsonl has no text column 'a'; it has b",
        ),
        ({f"{one}.jsonl": objects([{"text": two} for two in DOCUMENTS]) for one in ("train", "validation")}, "overlap"),
        ({"a.jsonl": objects(spoken_as("guest", "host"))}, "the role is 'guest'; .* rename it, or leave the chat out"),
        ({"a.jsonl": objects([*spoken_as("user", "bot"), {"messages": []}])}, "left out .* row 61: .* is empty"),
        (
            {"a.jsonl": objects([{"messages": [chat[-2]]} for chat in CHATS])},
            "the chat has no message of the assistant",
        ),
        ({"a.jsonl": pairs(SOURCES)}, "'target' repeats the source in every row, which teaches nothing"),
        ({"a.jsonl": pairs([TARGETS[0]] * 60)}, "'target' has one text for all sources, which teaches nothing"),
        ({"a.jsonl": pairs([*TARGETS[:50], *[" "] * 10])}, "left out: 10 rows of train without a label"),
        (
            {"train.jsonl": pairs(TARGETS), "validation.jsonl": pairs([None] * 60)},
            "validation.jsonl: no row of the validation split can be used, none of its 60 rows .* has a label",
        ),
        (
            {"train.jsonl": pairs(TARGETS), "validation.jsonl": pairs(TARGETS, "src", "tgt")},
            "validation.jsonl has no text column 'source'; it has src, tgt; did you mean 'src'",
        ),
    ],
)
def test_rows_that_cannot_be_used_are_told_of(files: dict[str, str], note: str, tmp_path: Path) -> None:
    """A validation file without targets ended in a KeyError, and targets that teach nothing were learned without a
    word."""
    _, made = begun(tmp_path / "given", files)
    assert re.search(note, "\n".join(made.notes))


@pytest.mark.parametrize(
    ("files", "wishes", "kind", "text"),
    [
        ({"a.txt": "\ufeff" + lines_of([one.replace("\n", " ") for one in DOCUMENTS])}, {}, "next-words", "text"),
        ({"a.txt": lines_of([f"few words {one} {2 * one}" for one in range(60)])}, {"task": "next-words"}, "", "text"),
        (
            {"a.jsonl": objects([{"text": one, "label": "ab"[len(one) % 2]} for one in DOCUMENTS])},
            {"task": "masked-words"},
            "",
            "text",
        ),
        (
            {"a.jsonl": objects([{"title": f"page {n}", "body": one} for n, one in enumerate(DOCUMENTS)])},
            {"task": "next-words"},
            "",
            "body",
        ),
        (
            {"a.jsonl": objects([{"text": f"שלום 😀👩‍👩‍👧 {n} " + f"מילה{n} 😀 " * 20} for n in range(60)])},
            {},
            "next-words",
            "text",
        ),
        ({"a.jsonl": objects([{"dialog": chat} for chat in CHATS])}, {}, "chats", "dialog"),
        ({"a.jsonl": objects([{"dialog": chat} for chat in CHATS])}, {"task": "chats", "text": "dialog"}, "", "dialog"),
        ({"a.jsonl": objects([{"messages": json.dumps(chat)} for chat in CHATS])}, {}, "chats", "messages"),
        (
            {"a.jsonl": objects([{"messages": chat, "label": n % 2} for n, chat in enumerate(CHATS)])},
            {},
            "chats",
            "messages",
        ),
        (
            {"a.jsonl": objects([{"messages": [*chat, {"role": "user", "content": "?"}]} for chat in CHATS])},
            {},
            "chats",
            "messages",
        ),
        (
            {
                "a.jsonl": objects(
                    [{"document": one * 9, "summary": other} for one, other in zip(DOCUMENTS, TARGETS, strict=True)]
                )
            },
            {},
            "seq2seq",
            "document",
        ),
        (
            {
                "a.jsonl": objects(
                    [
                        {"id": n, "translation": {"fr": source, "de": target}}
                        for n, (source, target) in enumerate(zip(SOURCES, TARGETS, strict=True))
                    ]
                )
            },
            {},
            "seq2seq",
            "translation.fr",
        ),
    ],
)
def test_what_can_be_learned_has_a_recipe(
    files: dict[str, str], wishes: dict[str, Any], kind: str, text: str, tmp_path: Path
) -> None:
    """Long texts with short summaries were taken for a language model's, short texts and texts beside a label were
    refused to who asked for one, and so were chats in a column of another name or in JSON."""
    recipe, made = begun(tmp_path / "given", files, **wishes)
    assert (recipe.spec.kind, recipe.spec.text) == (kind or wishes["task"], text)
    assert not any("to be corrected" in note for note in made.notes)
    assert not any("not read: translation" in note for note in made.notes)
    assert kind == "seq2seq" or (recipe.spec.label == "label" and "\n  label:" not in made.text)


@pytest.mark.parametrize(("kind", "metric"), [("next-words", "word_perplexity"), ("masked-words", "masked_perplexity")])
def test_the_gate_of_an_error_asks_for_a_share_of_the_teachers(kind: str, metric: str, tmp_path: Path) -> None:
    """As recipes of the shelf do: 0.83 of the teacher's perplexity over the student's is 1.2 times as much."""
    recipe, made = begun(tmp_path / "given", {"a.jsonl": objects([{"text": one} for one in DOCUMENTS])}, kind)
    (criterion,) = recipe.gate.criteria
    assert (criterion.metric, criterion.at_least, criterion.of_teacher) == ("retained", 0.83, False)
    assert f"the teacher's {metric} over the student's" in made.text and "at most 1.2 times as much" in made.text


@pytest.mark.parametrize(
    ("kind", "write", "sentence"),
    [
        ("chats", write_decoder, "has no template for chats .chat_template.; name a model that answers in chats"),
        ("chats", write_answering, ""),
        ("next-words", write_decoder, ""),
        ("next-words", write_encoder, "the teacher is of type bert, which sees the words behind a place"),
        ("next-words", write_translator, "which reads a source with one stack"),
        ("masked-words", write_encoder, ""),
        ("masked-words", write_decoder, "the teacher is of type llama, which finds no hidden words"),
        ("masked-words", write_translator, "the teacher is of type marian, which finds no hidden words"),
    ],
)
def test_a_teacher_of_another_kind_is_refused_before_anything_runs(
    kind: str, write: Callable[[Path], Path], sentence: str, tmp_path: Path
) -> None:
    """A plan passed, and the first training ended in the sentence."""
    model = write(tmp_path / "model")
    files = {
        "a.jsonl": objects(
            [
                {"messages": chat} if kind == "chats" else {"text": one}
                for chat, one in zip(CHATS, DOCUMENTS, strict=True)
            ]
        )
    }
    recipe, _ = begun(tmp_path / "given", files, kind, teacher=str(model))
    if not sentence:
        check_students(recipe, model, {})
        return
    with pytest.raises(ModelError, match=sentence):
        check_students(recipe, model, {})


def test_a_teacher_that_would_write_as_no_model_does_here_is_refused_before_anything_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A traceback of transformers came, after the training."""
    monkeypatch.setenv("LIMBECK_HOME", str(tmp_path / "home"))
    model = write_translator(tmp_path / "model")
    recipe, _ = begun(tmp_path / "given", {"a.jsonl": pairs(TARGETS)}, "seq2seq", teacher=str(model))
    assert check_recipe(recipe) is not None
    stated = json.loads((model / "generation_config.json").read_text())
    (model / "generation_config.json").write_text(json.dumps({**stated, "stop_strings": ["."]}))
    with pytest.raises(ModelError, match="sets stop_strings, with which no model writes here; remove it from"):
        check_recipe(recipe)
