"""Vocabulary trimming of real models of every family, and with the tokenizers that transformers has for them: what the
smaller folder computes, what it is made from, and what is refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from tasks.engine.job import Job
from tasks.errors import ModelError
from tasks.ports.rows.document_files import write_documents
from tasks.recipe.data import CorpusText
from tasks.recipe.makers.slices import VocabularySlice
from tasks.scoring.predict import outputs_of
from tasks.training.data.corpora import tokenize_corpus
from tasks.training.data.rows import load_tokenizer, read_rows, read_task
from tasks.training.models.students import load_classifier, save_model
from tasks.training.shrinking.vocabulary import document_of, keep_used_pieces
from tests.families import NAMES, write_tiny
from tests.methods.vocabulary.test_vocabulary import MADE

USED: dict[str, Any] = {"task_type": "classification", "keep": "used", "max_length": 32}


def job(output: Path, knobs: dict[str, Any], **inputs: Path) -> Job:
    output.mkdir()
    order = {"job": "vocabulary", "knobs": VocabularySlice(**knobs).model_dump(mode="json"), "output": str(output)}
    return Job({**order, "inputs": {name: str(folder) for name, folder in inputs.items()}}, silent=True)


def classifier(base: Path, rows: Path, output: Path) -> Path:
    """Save a model with a random head, as a stage would have."""
    model = load_classifier(base, read_task(rows, "classification"), torch.device("cpu"))
    with torch.no_grad():
        for value in model.parameters():
            value.add_(torch.randn_like(value) * 0.1)
    save_model(model, load_tokenizer(base), output)
    return output


def texts_in(rows: Path) -> list[str]:
    return read_rows(rows, "train", read_task(rows, "classification").head).texts


@pytest.mark.parametrize("name", NAMES)
def test_the_answers_to_its_own_texts_are_the_same_bit_by_bit(name: str, rows: Path, tmp_path: Path) -> None:
    whole = classifier(write_tiny(name, tmp_path / name, more=UNUSED), rows, tmp_path / "whole")
    facts = keep_used_pieces(job(tmp_path / "small", USED, base=whole, rows=rows))
    assert facts["pieces"] < facts["pieces_before"] and facts["cut_alike"] == 1.0
    assert json.loads((tmp_path / "small/config.json").read_text())["vocab_size"] == facts["pieces"]
    ours, theirs = (
        outputs_of(folder, texts_in(rows), None, 32, task_type="classification")["logits"]
        for folder in (tmp_path / "small", whole)
    )
    assert (ours == theirs).all()


def with_tokenizer(name: str, folder: Path) -> Path:
    """Write a model with the tokenizer class of its family, trained here."""
    document = {one: json.loads(made.to_str())["model"] for one, made in MADE.items()}
    if name == "roberta":
        specials = {"<s>": 0, "<pad>": 1, "</s>": 2, "<unk>": 3, "<mask>": 4}
        learned = {piece: number for piece, number in document["byte_pairs"]["vocab"].items() if number > 4}
        tokenizer: Any = transformers.RobertaTokenizer(
            vocab={**specials, **learned}, merges=[tuple(pair) for pair in document["byte_pairs"]["merges"]]
        )
    else:
        specials = {"albert": ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"], "xlnet": XLNET}[name]
        learned = document["unigram"]["vocab"][5:]
        classes = {"albert": transformers.AlbertTokenizer, "xlnet": transformers.XLNetTokenizer}
        tokenizer = classes[name](vocab=[(token, 0.0) for token in specials] + [tuple(one) for one in learned])
    write_tiny(name, folder, vocab_size=len(tokenizer), pad_token_id=tokenizer.pad_token_id)
    for path in folder.glob("tokenizer*"):
        path.unlink()
    tokenizer.save_pretrained(folder)
    return folder


UNUSED = ["quick", "brown", "foxes"]
XLNET = ["<unk>", "<s>", "</s>", "<cls>", "<sep>", "<pad>", "<mask>", "<eod>", "<eop>"]


@pytest.mark.parametrize("name", ["roberta", "albert", "xlnet"])
def test_the_tokenizers_of_transformers_read_the_smaller_file(name: str, rows: Path, tmp_path: Path) -> None:
    whole = classifier(with_tokenizer(name, tmp_path / name), rows, tmp_path / "whole")
    facts = keep_used_pieces(job(tmp_path / "small", USED, base=whole, rows=rows))
    before, after = (transformers.AutoTokenizer.from_pretrained(folder) for folder in (whole, tmp_path / "small"))
    assert type(after) is type(before) and len(after) == facts["pieces"] < len(before)
    assert facts["cut_alike"] > (0.9 if name != "roberta" else 0.999)
    for text in texts_in(rows)[:20]:
        assert after.tokenize(text) == before.tokenize(text)
    assert after.pad_token_id == json.loads((tmp_path / "small/config.json").read_text())["pad_token_id"]
    ours, theirs = (
        outputs_of(folder, texts_in(rows)[:20], None, 32, task_type="classification")["logits"]
        for folder in (tmp_path / "small", whole)
    )
    assert (ours == theirs).all()


def test_rows_that_judge_are_not_read(rows: Path, tiny_bert: Path, tmp_path: Path) -> None:
    whole = classifier(tiny_bert, rows, tmp_path / "whole")
    fewer = tmp_path / "rows"
    shutil.copytree(rows, fewer)
    judging = [path for path in fewer.iterdir() if path.stem in ("validation", "holdout", "test")]
    assert judging
    for path in judging:
        path.write_bytes(b"not even a table")
    found = {}
    for name, folder in (("all", rows), ("fewer", fewer)):
        keep_used_pieces(job(tmp_path / name, USED, base=whole, rows=folder))
        found[name] = {path.name: path.read_bytes() for path in (tmp_path / name).iterdir() if path.is_file()}
    assert found["all"] == found["fewer"]


def test_a_corpus_adds_its_pieces_and_rows_count_ten_times(rows: Path, tmp_path: Path) -> None:
    base = write_tiny("bert", tmp_path / "base", more=UNUSED)
    whole, corpus = classifier(base, rows, tmp_path / "whole"), tokenized(["quick brown foxes"] * 3, base, tmp_path)
    more = {"corpus": corpus, "pretrained": base}
    kept = {}
    for name, knobs, given in (
        ("alone", {}, {}),
        ("both", {}, more),
        ("often", {"floor": 4}, more),
        ("only", {"train": False}, more),
    ):
        facts = keep_used_pieces(job(tmp_path / name, {**USED, **knobs}, base=whole, rows=rows, **given))
        kept[name] = set(load_tokenizer(tmp_path / name).get_vocab())
        assert len(kept[name]) == facts["pieces"]
        assert facts["cut_alike"] == (None if name == "only" else 1.0), "no text of the rows has these pieces alone"
    assert kept["both"] == kept["alone"] | set(UNUSED)
    assert not set(UNUSED) & kept["often"] and "film" in kept["often"], "three times, and ten times each row"
    assert set(UNUSED) <= kept["only"] and "film" not in kept["only"]
    with pytest.raises(ModelError, match="the corpus is tokenized with the pretrained model's"):
        keep_used_pieces(job(tmp_path / "again", USED, base=tmp_path / "alone", rows=rows, **more))


def tokenized(documents: list[str], base: Path, folder: Path) -> Path:
    """Tokenize documents as the stage would."""
    for name in ("documents", "corpus"):
        (folder / name).mkdir()
    write_documents(folder / "documents", documents)
    order = {"job": "tokenize", "knobs": CorpusText(source="x", max_length=16).model_dump(mode="json")}
    inputs = {"documents": str(folder / "documents"), "base": str(base)}
    tokenize_corpus(Job({**order, "inputs": inputs, "output": str(folder / "corpus")}, silent=True))
    return folder / "corpus"


def test_the_score_on_the_selection_rows_chooses_among_seeds(rows: Path, tiny_bert: Path, tmp_path: Path) -> None:
    whole = classifier(tiny_bert, rows, tmp_path / "whole")
    facts = keep_used_pieces(job(tmp_path / "small", USED, base=whole, rows=rows))
    held = read_rows(rows, "selection", read_task(rows, "classification").head)
    logits = outputs_of(whole, held.texts, None, 32, task_type="classification")["logits"]
    assert facts["selection_score"] == float((logits.argmax(1) == held.labels_N).mean())


def test_a_tokenizer_without_its_file_is_refused(rows: Path, tmp_path: Path) -> None:
    class Slow:
        is_fast = False

    with pytest.raises(ModelError, match="a Slow without tokenizer.json"):
        document_of(Slow())
