"""A MobileBERT made from a BERT: the very BERT without a bottleneck, a student of identities with one; as large as the
literature says, a plain folder, whose norms are folded away and whose answers know nothing of padding."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import transformers

from flows.run.recipe_file import load_recipe
from tasks.architectures.known_architectures import shape_of
from tasks.architectures.mobilebert.norm_folding import fold_norms, fold_norms_or_not
from tasks.architectures.mobilebert.of_bert import mobilebert_config
from tasks.architectures.mobilebert.padding_row import without_padding_row
from tasks.catalog import TaskSpec
from tasks.errors import ModelError
from tasks.ports.rows.prepared import prepare_rows
from tasks.preflight import check_students
from tasks.recipe.slices import AnswerSlice, IntermediateSlice, PredictionSlice, RowsSlice, TeacherSlice
from tasks.recipe.students import Shape
from tasks.scoring.jobs import JOBS as SCORING
from tasks.scoring.speed.flops import parameters_of
from tasks.training.data.rows import load_tokenizer
from tasks.training.jobs import JOBS as TRAINING
from tasks.training.models.students import build_student, load_classifier, save_model
from tests.architecture.sources import ROOT
from tests.architectures.test_a_further_architecture import done
from tests.architectures.test_albert_of_bert import WITH_HEADS, outputs_of, tiny
from tests.families import write_tiny
from tests.scoring.test_jobs import CLASSES
from tests.training.test_families import CPU, FAST, SECOND, TASK, TEXTS, batch_of, recipe, same_after_reload

TINY_FORM = {"feed_forwards": 2, "narrow_attention": True}
SMALL: dict[str, Any] = {"layers": 4, "bottleneck": 8, "embedding": 8}


def random_within(**shape: Any) -> Any:
    """Return a MobileBERT in float64 whose every weight counts."""
    head = shape.pop("head", "ForSequenceClassification")
    model = build_student("mobilebert", tiny(head), Shape(**SMALL | shape), seed=0).double().eval()
    with torch.no_grad():
        for value in model.parameters():
            value.add_(torch.randn_like(value) * 0.2)
    return without_padding_row(model)


@pytest.mark.parametrize("head", WITH_HEADS)
def test_without_a_bottleneck_it_computes_what_the_bert_does(head: str) -> None:
    """But for the order in which three embeddings are summed. transformers adds 1e-5 to the variance in two norms."""
    teacher = tiny(head, hidden_act="relu").double()
    student = build_student("mobilebert", teacher, Shape(layers=4, bottleneck=16), seed=0).double()
    assert student.config.model_type == "mobilebert" and not student.config.use_bottleneck
    for ours, theirs in zip(outputs_of(student), outputs_of(teacher), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-10)


def test_without_a_bottleneck_its_layers_are_the_berts_to_the_last_bit() -> None:
    teacher = tiny("")
    student = build_student("mobilebert", teacher, Shape(layers=4, bottleneck=16), seed=0).eval()
    states_BTD, mask = torch.randn(2, 5, 16), torch.zeros(2, 1, 1, 5)
    for model in (student, teacher):
        model.set_attn_implementation("eager")
    with torch.no_grad():
        ours, theirs = (model.encoder(states_BTD, mask).last_hidden_state for model in (student, teacher))
    assert torch.equal(ours, theirs)


@pytest.mark.parametrize("form", [{}, TINY_FORM, {"norm": "layer_norm", "activation": "gelu"}])
def test_with_a_bottleneck_every_layer_begins_as_the_identity(form: dict[str, Any]) -> None:
    """So that its classifier reads the teacher's embedding output; a LayerNorm is none."""
    teacher = tiny()
    student = build_student("mobilebert", teacher, Shape(layers=4, bottleneck=8, embedding=16, **form), seed=0).eval()
    ids_BT = torch.arange(1, 25).reshape(3, 8)
    with torch.no_grad():
        first, *others = student.mobilebert(ids_BT, output_hidden_states=True).hidden_states
        theirs = teacher.bert.embeddings(ids_BT)
    if "norm" not in form:
        assert all(torch.equal(states, first) for states in others)
        spread = (theirs - theirs.mean((0, 1))).square().mean()
        assert float((first - theirs).square().mean() / spread) < 0.1, "a norm of a sum is no sum of norms"
    assert torch.equal(student.classifier.weight, teacher.classifier.weight)
    assert torch.equal(student.mobilebert.pooler.dense.weight, teacher.bert.pooler.dense.weight)
    assert not student.get_input_embeddings().weight[0].any()


def test_a_masked_lm_begins_with_the_dimensions_that_matter_most_to_the_teachers() -> None:
    teacher = tiny("ForMaskedLM")
    student = build_student("mobilebert", teacher, Shape(**SMALL), seed=0)
    ours, theirs = student.cls.predictions, teacher.cls.predictions
    kept = ours.transform.LayerNorm.weight != 0
    assert kept.tolist() == [False] * 8 + [True] * 8
    assert {tuple(row) for row in ours.dense.weight.tolist()} <= {
        tuple(row) for row in theirs.decoder.weight.T.tolist()
    }
    torch.testing.assert_close(ours.decoder.bias, theirs.bias)


def of_size(shape: dict[str, Any], **bert: Any) -> int:
    """Return the parameters of a classifier of this shape, without making them."""
    config = transformers.BertConfig(**bert)
    with torch.device("meta"):
        model = transformers.MobileBertForSequenceClassification(
            mobilebert_config(config, SimpleNamespace(**shape), config.num_hidden_layers)
        )
    return sum(value.numel() for value in model.parameters())


def test_it_has_as_many_parameters_as_the_literature_says() -> None:
    """In millions: the paper's two models, and three students of a BERT of 6 layers of 384."""
    google = {"hidden_size": 512, "num_attention_heads": 4, "num_hidden_layers": 24}
    assert of_size({}, **google) == 24_845_570 and abs(24.846 - 25.3) < 1
    assert of_size(TINY_FORM, **google) == 15_749_378 and abs(15.749 - 15.1) < 1
    small = {"hidden_size": 384, "num_attention_heads": 12, "num_hidden_layers": 6}
    found = [of_size(one, **small) / 1e6 for one in ({}, {"feed_forwards": 2}, {"bottleneck": 192, "feed_forwards": 2})]
    assert [round(one, 2) for one in found[:2]] == [7.25, 6.36], found


def test_a_made_mobilebert_is_a_plain_folder_that_loads_without_this_code(tmp_path: Path) -> None:
    base = write_tiny("bert", tmp_path / "bert")
    student = build_student("mobilebert", load_classifier(base, TASK, CPU), Shape(**SMALL), seed=0).eval()
    with torch.no_grad():  # the row of [PAD], too: it is written as zero
        for value in student.parameters():
            value.add_(torch.randn_like(value) * 0.1)
    save_model(student, load_tokenizer(base), tmp_path / "student")
    again = load_classifier(tmp_path / "student", TASK, CPU).eval()
    inputs = batch_of(tmp_path / "student", TEXTS, SECOND).inputs(again)
    with torch.no_grad():
        assert torch.equal(again(**inputs).logits, student(**inputs).logits)
    same_after_reload(tmp_path / "student")
    assert parameters_of(tmp_path / "student") == sum(value.numel() for value in student.parameters())


def test_a_text_s_last_token_does_not_read_the_padding_after_it() -> None:
    """Its embedding is made of its neighbours', and the one to its right is that of [PAD] in a batch: a row of [PAD]
    that is not zero gives a text other answers beside a longer one."""
    model = random_within()
    model.set_attn_implementation("eager")
    table, ids_BT = model.get_input_embeddings().weight, torch.tensor([[5, 6, 7, 8]])

    def change_by_padding() -> float:
        wide = torch.nn.functional.pad(ids_BT, (0, 3)), torch.nn.functional.pad(torch.ones_like(ids_BT), (0, 3))
        with torch.no_grad():
            found = model(ids_BT).logits - model(wide[0], attention_mask=wide[1]).logits
        return float(found.abs().max())

    assert change_by_padding() < 1e-12
    with torch.no_grad():
        table[0] = 1.0
    assert change_by_padding() > 1e-2
    without_padding_row(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.1)
    for _ in range(3):
        model(torch.tensor([[5, 6, 0, 0]])).logits.square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    assert not table[0].any() and change_by_padding() < 1e-10, "training leaves the row as it is"


@pytest.mark.parametrize("head", WITH_HEADS)
@pytest.mark.parametrize("form", [{}, TINY_FORM, {"feed_forwards": 1}])
def test_norms_are_folded_away_and_no_answer_changes(head: str, form: dict[str, Any]) -> None:
    model = random_within(head=head, **form)
    kept = {name: value.clone() for name, value in model.state_dict().items()}
    folded = fold_norms(model)
    for ours, theirs in zip(outputs_of(folded), outputs_of(model), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-11, atol=1e-11)
    kinds = [type(module).__name__ for module in folded.modules()]
    assert kinds.count("NoNorm") == 1 < [type(module).__name__ for module in model.modules()].count("NoNorm")
    assert all(torch.equal(value, kept[name]) for name, value in model.state_dict().items()), "the model is not changed"


def test_norms_that_cannot_be_divided_by_stay() -> None:
    model = random_within()
    with torch.no_grad():
        model.mobilebert.encoder.layer[1].output.LayerNorm.weight[3] = 1e-5
    with pytest.raises(ModelError, match="a norm has a weight below 0.001"):
        fold_norms(model)
    assert fold_norms_or_not(model) is model
    whole = build_student("mobilebert", tiny(), Shape(layers=4, bottleneck=16), seed=0)
    assert fold_norms_or_not(whole) is whole
    with torch.no_grad():
        for layer in (model := random_within()).mobilebert.encoder.layer:
            layer.output.bottleneck.LayerNorm.weight[0] = 0.05
    with pytest.raises(ModelError, match="the factors of the dimensions of a stream differ by"):
        fold_norms(model)


def test_it_goes_through_both_phases_and_scores(tiny_rows: Path, tmp_path: Path) -> None:
    rows, base = tmp_path / "rows", write_tiny("bert", tmp_path / "base")
    prepare_rows(tiny_rows, RowsSlice(task=TaskSpec(name="tiny"), selection_rows=20), rows)
    teacher, first, student = tmp_path / "teacher", tmp_path / "first", tmp_path / "student"
    done(TRAINING, "finetune", TeacherSlice(task_type="classification", **FAST), teacher, rows=rows, base=base)
    inner = IntermediateSlice(
        task_type="classification", **FAST, method="feature-maps", shape=Shape(**SMALL), start="mobilebert"
    )
    facts = done(TRAINING, "intermediate", inner, first, rows=rows, teacher=teacher)
    assert facts["steps_of_parts"] == [1, 1, 1, 1]
    answers = AnswerSlice(task_type="classification", max_length=16, precision="fp32")
    done(TRAINING, "answer", answers, tmp_path / "answers", rows=rows, teacher=teacher)
    given = {"rows": rows, "teacher": teacher, "answers": tmp_path / "answers", "start": first}
    done(TRAINING, "prediction", PredictionSlice(task_type="classification", **FAST), student, **given)
    card = done(SCORING, "score", CLASSES, tmp_path / "card", [student], rows=rows, teacher=teacher)
    assert card["parameters"] == parameters_of(student) and card["flops"] > 0


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ({"bottleneck": 6}, "bottleneck is 6, with layers 16 wide and 4 heads; give it a multiple of 4, at most 16"),
        ({"bottleneck": 32}, "bottleneck is 32, with layers 16 wide"),
        ({"hidden": 8}, "has its teacher's hidden between the layers, 16, and the shape says 8"),
        ({"heads": 2}, "has its teacher's heads between the layers, 4"),
        ({"bottleneck": 16, "feed_forwards": 2}, "the layers are the teacher's own and feed_forwards cannot be set"),
    ],
)
def test_sizes_that_do_not_fit_are_refused_before_any_stage_runs(
    shape: dict[str, Any], message: str, tmp_path: Path
) -> None:
    base = write_tiny("bert", tmp_path / "bert")
    with pytest.raises(ModelError, match=message):
        build_student("mobilebert", tiny(), Shape(layers=4, **shape), seed=0)
    with pytest.raises(ModelError, match=message):
        check_students(recipe({"layers": 4, "start": "mobilebert", **shape}), base, {})


def test_its_knobs_are_its_own_and_others_keep_their_keys() -> None:
    assert Shape(layers=2).key_values() == {"layers": 2, "hidden": None, "heads": None, "feed_forward": None}
    assert Shape(layers=2, bottleneck=8).key_values()["bottleneck"] == 8
    with pytest.raises(ValueError, match="norm is 'none'; legal are no_norm, layer_norm"):
        Shape(layers=2, norm="none")
    student = build_student("mobilebert", tiny(), Shape(**SMALL), seed=0)
    assert shape_of(student.config) == {
        "layers": 4,
        "hidden": 16,
        "heads": 4,
        "feed_forward": 32,
        "embedding": 8,
        "bottleneck": 8,
        "feed_forwards": 4,
    }


def test_recipes_of_the_shelf_train_it_on_general_text_at_a_rate_that_models_without_norms_bear() -> None:
    """Three of them had the rate of a LayerNorm's model, against the words of a header."""
    rates: dict[str, list[float]] = {}
    for path in sorted((ROOT / "deployments" / "recipes").glob("*.yaml")):
        if "start: mobilebert" not in path.read_text():
            continue
        recipe = load_recipe(str(path), [])
        general = [recipe.general_distillation, *(one.general for one in recipe.new_students)]
        rates[path.stem] = [one.learning_rate for one in general if one is not None]
    assert {"mobilebert", "mobilebert-small", "mobilebert-tiny"} <= rates.keys()
    assert all(rate <= 1e-4 for found in rates.values() for rate in found), rates
    assert len(rates["mobilebert-small"]) == 6 and len(set(rates["mobilebert-small"])) == 1, "rows of one table"
