"""Options in batches: rows stay whole, losses are those of each row's own options, and a score does not depend on the
options beside it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F
from transformers import AutoConfig, AutoModelForMultipleChoice, AutoTokenizer

from tasks.errors import ModelError
from tasks.ports.rows.row_files import StoredRows
from tasks.recipe.training import SeededTraining
from tasks.scoring.speed.texts import read_apart
from tasks.task_types.answers import ANSWERS
from tasks.task_types.choices.head import rows_of_options
from tasks.task_types.choices.models import AutoModelForOptions
from tasks.task_types.choices.options import OPTION_PARTS, option_targets
from tasks.task_types.heads import HEADS
from tasks.task_types.units import ragged_array
from tasks.training.data.encoded import collate, encode_parts
from tasks.training.data.epochs import Epoch, Indices, batches_of_rows, planned
from tasks.training.distributed import ProcessGroup
from tasks.training.models.students import build_student

HEAD = HEADS["choices"]
TARGETS = torch.tensor([*option_targets(7, "1/3", 3), *option_targets(9, "0/2", 2), *option_targets(8, None, 2)])
SCORES = torch.tensor([0.3, 1.5, -0.2, 2.0, 2.5, 0.1, 0.7])[:, None].requires_grad_()
THEIRS = torch.tensor([0.0, 2.0, 1.0, -1.0, 3.0, 0.5, -0.5])[:, None]
ROWS = [slice(0, 3), slice(3, 5), slice(5, 7)]


def test_a_loss_on_labels_is_that_of_the_labelled_rows() -> None:
    expected = -(F.log_softmax(SCORES[:3, 0], 0)[1] + F.log_softmax(SCORES[3:5, 0], 0)[0]) / 2
    torch.testing.assert_close(HEAD.label_loss({"logits": SCORES}, TARGETS).mean(), expected)


def test_soft_targets_are_over_the_options_of_a_row() -> None:
    knobs: dict[str, Any] = {"temperature": 2.0, "hard_weight": 0.0, "formula": "default"}
    found = HEAD.teacher_loss({"logits": SCORES}, {"logits": THEIRS}, TARGETS, **knobs).mean()
    of_rows = [
        F.kl_div(F.log_softmax(SCORES[row, 0] / 2, 0), F.softmax(THEIRS[row, 0] / 2, 0), reduction="sum") * 4
        for row in ROWS
    ]
    torch.testing.assert_close(found, torch.stack(of_rows).mean())
    (gradient,) = torch.autograd.grad(found, SCORES)
    assert (
        torch.isfinite(gradient).all() and gradient[:3].sum().abs() < 1e-6
    )  # a constant added to a row changes nothing


def test_mixed_answers_of_teachers_are_the_mean_of_scores() -> None:
    both_MU1 = torch.stack([SCORES.detach(), THEIRS])
    mixed = HEAD.mix(both_MU1, torch.full((2, len(SCORES)), 0.5), 2.0)
    torch.testing.assert_close(mixed, both_MU1.mean(0))


def encoded_rows(tokenizer: Any) -> Any:
    """Return tokens of rows with two to four options."""
    counts = [2, 3, 4, 2, 3, 2, 4, 2]
    texts = [f"the film was good {'bad ' * number}" for number in range(8)]
    pairs = ["\n".join("a song" + " fine" * option for option in range(count)) for count in counts]
    return encode_parts(tokenizer, texts, pairs, 16, OPTION_PARTS), np.asarray(counts)


def test_batches_hold_whole_rows(tiny_bert: Path) -> None:
    encoded, counts_N = encoded_rows(AutoTokenizer.from_pretrained(tiny_bert))
    row_F = encoded.windows.row_F
    knobs = SeededTraining.model_construct(batch_size=3, batch_tokens=10_000, seed=0)
    epoch = planned(0, encoded, knobs)
    some = batches_of_rows(encoded, np.asarray([1, 4, 6]), size=2, tokens=10_000)
    for batches, rows in ((epoch.batches, range(8)), (some, (1, 4, 6))):
        assert sorted(np.concatenate(batches)) == [place for place, row in enumerate(row_F) if row in rows]
        for batch in batches:
            assert all((row_F[batch] == row).sum() in (0, counts_N[row]) for row in range(8))
    assert max(len(np.unique(row_F[batch])) for batch in epoch.batches) == 3


def test_processes_share_whole_rows(tiny_bert: Path) -> None:
    encoded, counts_N = encoded_rows(AutoTokenizer.from_pretrained(tiny_bert))
    row_F, shares = encoded.windows.row_F, []
    for rank in range(2):
        group = ProcessGroup()
        group.rank, group.size = rank, 2
        shares.append(group.share(Indices(Epoch(0, encoded, []), np.arange(len(row_F)))).rows_B)
    assert sorted(np.concatenate(shares)) == list(range(len(row_F)))
    for share in shares:
        assert all((row_F[share] == row).sum() in (0, counts_N[row]) for row in range(8))


def test_an_option_has_the_score_that_transformers_own_class_gives_it_in_a_row(tiny_bert: Path, tmp_path: Path) -> None:
    config = AutoConfig.from_pretrained(tiny_bert)
    HEAD.configure(config, ())
    torch.manual_seed(0)
    model = HEAD.auto_class().from_config(config).eval()
    model.save_pretrained(tmp_path)
    plain = AutoModelForMultipleChoice.from_pretrained(tmp_path)
    assert type(plain).__name__ == "BertForMultipleChoice" == plain.config.architectures[0]
    tokenizer = AutoTokenizer.from_pretrained(tiny_bert)
    encoded, counts_N = encoded_rows(tokenizer)
    batch = collate(encoded, np.arange(sum(counts_N)), tokenizer.pad_token_id, torch.device("cpu"))
    with torch.inference_mode():
        ours = model(**batch.inputs(model)).logits
        row = {name: values[None, 2:5] for name, values in batch.inputs(plain).items()}  # the second row, of three
        torch.testing.assert_close(plain(**row).logits[0], ours[2:5, 0])
        torch.testing.assert_close(model(**row).logits[0], ours[2:5, 0])
    assert rows_of_options(ours, torch.tensor(option_targets(1, None, len(ours)))).shape == (1, len(ours))


def test_an_architecture_without_such_a_class_is_refused_in_a_sentence() -> None:
    with pytest.raises(
        ModelError, match="a model of type gpt2 has no class for multiple choice in transformers; name a BERT"
    ):
        AutoModelForOptions.from_config(AutoConfig.for_model("gpt2"))


def test_equal_scores_are_as_right_as_guessing() -> None:
    """A model without an answer was always right where the right option is the first one."""
    rows = [np.zeros((4, 1), np.float32)] * 40 + [np.asarray([[1.0], [2], [2], [0]], np.float32)] * 40
    found = ANSWERS["choices"].decide({"logits": ragged_array(rows)})
    accuracy = ANSWERS["choices"].metrics["accuracy"]
    assert accuracy(found[:40], np.asarray(["0/4"] * 40)) == accuracy(found[:40], np.asarray(["3/4"] * 40)) == 0.25
    assert accuracy(found[40:], np.asarray(["1/4"] * 40)) == 0.5 and not {"0/4", "3/4"} & {*found[40:]}


def test_the_floor_is_above_guessing_among_the_options_of_each_row() -> None:
    answers, labels_N = ANSWERS["choices"], np.asarray(["0/2", "1/4", "2/4"])
    facts = answers.guess(np.asarray(["0/2", "1/4", "0/4"]), labels_N)
    assert facts == {"chance": pytest.approx(1 / 3), "selection_accuracy": pytest.approx(2 / 3)}
    assert answers.floor.least(facts) == pytest.approx(1 / 3 + 0.05)


def test_answers_are_compared_by_the_texts_of_options() -> None:
    outputs = [
        {"logits": np.asarray([np.asarray(row)[:, None] for row in rows], dtype=object)}
        for rows in ([[0.0, 9.0], [1.0, 0.0, 0.0]], [[8.0, 0.0], [3.0, 0.0, 0.0]])
    ]
    answers, labels_N = ANSWERS["choices"], np.asarray(["0/2", "0/3"])
    ours, theirs = (answers.read(one) for one in outputs)
    apart = answers.apart(ours, theirs, labels_N, np.asarray([5, 6]), 3)
    assert apart["counts"] == {
        "rows": 2,
        "both_right": 1,
        "only_student": 0,
        "only_teacher": 1,
        "both_wrong": 0,
        "differ": 1,
    }
    assert [one["id"] for one in apart["examples"]["surest"]] == [5]
    assert answers.alone(ours, labels_N, 10)["certainty_of_errors"] == pytest.approx(1.0, abs=1e-3)


def test_stored_answers_and_windows_have_ids_of_their_own(tiny_bert: Path) -> None:
    encoded, _ = encoded_rows(AutoTokenizer.from_pretrained(tiny_bert))
    ids = encoded.ids_of(np.arange(100, 108))
    assert len(np.unique(ids)) == len(ids) == encoded.answers
    assert replace(encoded, windows=None).first_of_rows is None


def test_texts_are_timed_option_by_option() -> None:
    """Options that are joined would be one long text, which the model never reads."""
    rows = StoredRows([7, 9], ["Q?", "R?"], ["one\ntwo\nthree", "four\nfive"], ["1/3", "0/2"])
    apart = read_apart(rows, "choices")
    assert apart.texts == ["Q?"] * 3 + ["R?"] * 2 and apart.pairs == ["one", "two", "three", "four", "five"]
    assert read_apart(rows, "classification") is rows and read_apart(rows, "spans") is rows


@pytest.mark.parametrize("start", ["albert", "distilbert", "mobilebert"])
def test_students_of_other_architectures_read_options_and_state_their_type(start: str) -> None:
    """Their own classes read rows of options alone, and a folder without the type is predicted as another one."""
    config = AutoConfig.for_model("bert", vocab_size=64, hidden_size=16, num_attention_heads=2, intermediate_size=32)
    config.num_hidden_layers = 2
    for name in ("choices", "ranking"):
        HEADS[name].configure(config, [])
        teacher = HEADS[name].auto_class().from_config(config, attn_implementation="eager")
        shape = SimpleNamespace(layers=2, bottleneck=8) if start == "mobilebert" else SimpleNamespace(layers=2)
        student = build_student(start, teacher, shape, seed=0).eval()
        assert student.config.model_type == start and student.config.limbeck_task_type == name
        ids_BT = torch.randint(5, 60, (3, 8), generator=torch.Generator().manual_seed(0))
        scores = student(input_ids=ids_BT, attention_mask=torch.ones_like(ids_BT)).logits
        assert scores.shape == (3, 1)
        if name == "choices":
            in_a_row = student(input_ids=ids_BT[None], attention_mask=torch.ones_like(ids_BT)[None]).logits
            torch.testing.assert_close(scores[:, 0], in_a_row[0])
