"""An ALBERT made from a BERT: exact where nothing is shared, as large as the literature says, a plain folder."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import onnx
import pytest
import torch
import transformers

from tasks.architectures.albert import ALBERT_AND_BERT, SHARING, albert_config, groups_of, is_copied_part
from tasks.catalog import TaskSpec
from tasks.errors import ModelError
from tasks.exports.jobs import JOBS as EXPORTING
from tasks.methods.layers.layer_dropping import drop_layers
from tasks.ports.rows.prepared import prepare_rows
from tasks.preflight import check_students
from tasks.recipe.chains import what_layers_share
from tasks.recipe.recipe import Recipe
from tasks.recipe.slices import AnswerSlice, IntermediateSlice, PredictionSlice, RowsSlice, TeacherSlice
from tasks.recipe.students import Shape, Student
from tasks.scoring.jobs import JOBS as SCORING
from tasks.scoring.speed.flops import forward_flops, parameters_of
from tasks.training.data.rows import load_tokenizer
from tasks.training.jobs import JOBS as TRAINING
from tasks.training.models.students import build_student, load_classifier, save_model
from tests.architectures.test_a_further_architecture import done
from tests.exports.test_exports import EXPORT
from tests.families import BERT_LIKE, write_tiny
from tests.forked.strangers import ask_stranger
from tests.methods.oracles import EXACT, Oracle, reads
from tests.scoring.test_jobs import CLASSES
from tests.training.test_families import CPU, FAST, SECOND, TASK, TEXTS, batch_of, recipe

WITH_HEADS = ("", "ForMaskedLM", "ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering")
IN_A_CLEAN_PROCESS = """
import sys, torch, transformers
model = transformers.AutoModelForSequenceClassification.from_pretrained(sys.argv[1]).eval()
tokenizer = transformers.AutoTokenizer.from_pretrained(sys.argv[1])
with torch.no_grad():
    print(repr(model(**tokenizer("the film was good", return_tensors="pt")).logits[0].tolist()))
assert not any(name.split(".")[0] in ("tasks", "flows") for name in sys.modules)
"""


def tiny(head: str = "ForSequenceClassification", **changes: Any) -> Any:
    """Return a BERT with weights large enough that texts get different answers."""
    torch.manual_seed(3)
    config = transformers.BertConfig(**{"vocab_size": 60, **BERT_LIKE, **changes})
    model = getattr(transformers, f"Bert{head or 'Model'}")._from_config(config).eval()
    with torch.no_grad():
        for value in model.parameters():
            value.add_(torch.randn_like(value) * 0.1)
    return model


def outputs_of(model: Any) -> tuple[torch.Tensor, ...]:
    """Return the outputs for a batch with padding and two segments."""
    ids_BT = torch.arange(1, 25).reshape(3, 8) % 60
    mask_BT = torch.tensor([[1] * 8, [1] * 5 + [0] * 3, [1] * 8])
    kinds_BT = torch.tensor([[0] * 4 + [1] * 4] * 3)
    model.set_attn_implementation("eager")
    with torch.no_grad():
        found = model.eval()(input_ids=ids_BT, attention_mask=mask_BT, token_type_ids=kinds_BT)
    return tuple(value for value in found.to_tuple() if isinstance(value, torch.Tensor))


@pytest.mark.parametrize("head", WITH_HEADS)
def test_with_nothing_shared_it_computes_what_the_bert_does_to_the_last_bit(head: str) -> None:
    """Also with another activation than the default; the teacher is not changed."""
    teacher = tiny(head, hidden_act="relu")
    before = copy.deepcopy(teacher.state_dict())
    student = build_student("albert", teacher, Shape(layers=4, share="none", embedding=16), seed=0)
    assert student.config.model_type == "albert" and student.config.num_hidden_groups == 4
    for ours, theirs in zip(outputs_of(student), outputs_of(teacher), strict=True):
        assert torch.equal(ours, theirs)
    assert all(torch.equal(value, before[name]) for name, value in teacher.state_dict().items())


def test_shared_layers_begin_with_the_mean_of_those_whose_place_they_take() -> None:
    teacher = tiny()
    layers = teacher.bert.encoder.layer

    def first_maps(**shape: Any) -> list[torch.Tensor]:
        student = build_student("albert", teacher, Shape(layers=4, embedding=8, **shape), seed=1)
        return [group.albert_layers[0].ffn.weight for group in student.albert.encoder.albert_layer_groups]

    weights = [layer.intermediate.dense.weight for layer in layers]
    (whole,) = first_maps()
    torch.testing.assert_close(whole, torch.stack(weights).mean(0))
    for ours, theirs in zip(first_maps(share="groups:2"), (weights[:2], weights[2:]), strict=True):
        torch.testing.assert_close(ours, torch.stack(theirs).mean(0))
    assert [
        torch.equal(one, two)
        for one, two in zip(first_maps(share="groups:2", merge="layer:2"), weights[1::2], strict=True)
    ] == [
        True,
        True,
    ]
    (drawn,) = first_maps(merge="random")
    assert not any(torch.equal(drawn, one) for one in weights) and drawn.std() < 0.03
    for ours, theirs in zip(first_maps(share="attention", merge="random"), weights, strict=True):
        assert torch.equal(ours, theirs), "only what layers share is drawn"
    (first, *_) = first_maps(share="ffn", merge="random")
    assert not any(torch.equal(first, one) for one in weights)


def test_embeddings_are_fitted_to_the_output_of_the_embedding_layer_and_not_to_the_table() -> None:
    """The norm stands before the map: codes whose norm varies would be scaled to one length. With as many axes as the
    teacher has, but for two, the output differs by those two; the mean output is met at any width."""
    torch.manual_seed(0)
    teacher = tiny("", hidden_size=32, intermediate_size=32)
    with torch.no_grad():  # a table of rank 6, and rows of very different lengths
        table = teacher.embeddings.word_embeddings.weight
        table.copy_(torch.randn(60, 6) @ torch.randn(6, 32) * torch.linspace(0.2, 3, 60)[:, None])
        teacher.embeddings.position_embeddings.weight.mul_(0)
        teacher.embeddings.token_type_embeddings.weight.mul_(0)
    student = build_student("albert", teacher, Shape(layers=1, embedding=10), seed=0).eval()
    ids_BT = torch.arange(60)[None]
    with torch.no_grad():
        theirs_ND = teacher.embeddings(ids_BT)[0]
        ours_ND = student.encoder.embedding_hidden_mapping_in(student.embeddings(ids_BT))[0]
        # a plain factorisation of the table, through the same norm
        u, s, v = torch.linalg.svd(table, full_matrices=False)
        plain_ND = torch.nn.functional.layer_norm((u * s)[:, :10], (10,)) @ v[:10]
        plain_ND = plain_ND * (theirs_ND * plain_ND).sum() / plain_ND.square().sum()
    spread = (theirs_ND - theirs_ND.mean(0)).square().mean()
    ours, plain = ((found - theirs_ND).square().mean() / spread for found in (ours_ND, plain_ND))
    assert ours < 1e-3 < 0.02 < plain, (float(ours), float(plain))


def test_a_made_albert_is_a_plain_folder_that_loads_without_this_code(tmp_path: Path) -> None:
    """Saved as a stage saves it; a process that imports none of our code gets the same logits, bit by bit."""
    base = write_tiny("bert", tmp_path / "bert")
    teacher = load_classifier(base, TASK, CPU)
    student = build_student("albert", teacher, Shape(layers=4, embedding=8, share="groups:2"), seed=0).eval()
    save_model(student, load_tokenizer(base), tmp_path / "student")
    again = load_classifier(tmp_path / "student", TASK, CPU).eval()
    inputs = batch_of(tmp_path / "student", TEXTS, SECOND).inputs(again)
    with torch.no_grad():
        assert torch.equal(again(**inputs).logits, student(**inputs).logits)
        student.set_attn_implementation("sdpa")
        own = student(**load_tokenizer(base)("the film was good", return_tensors="pt")).logits[0].tolist()
    found = ask_stranger(IN_A_CLEAN_PROCESS, str(tmp_path / "student"), folder=tmp_path)
    assert found.stdout.strip() == repr(own), found.stderr
    assert parameters_of(tmp_path / "student") == sum(value.numel() for value in student.parameters())


def test_shared_weights_take_turns_and_a_turn_can_be_dropped() -> None:
    student = build_student("albert", tiny(), Shape(layers=4, embedding=8, share="groups:2"), seed=0)
    before = sum(value.numel() for value in student.parameters())
    drop_layers(student, [0, 2])
    assert student.config.num_hidden_layers == 2 and len(outputs_of(student)) == 1
    assert sum(value.numel() for value in student.parameters()) == before


@pytest.mark.parametrize(
    ("share", "layers", "groups"), [(None, 6, 1), ("all", 12, 1), ("groups:3", 12, 3), ("none", 5, 5)]
)
def test_ways_to_share(share: str | None, layers: int, groups: int) -> None:
    assert groups_of(share, layers) == groups


@pytest.mark.parametrize(
    ("knobs", "message"),
    [
        ({"layers": 18, "share": "groups:14"}, "assigned differently by different programs"),
        ({"layers": 4, "share": "groups:5"}, "makes 5 groups of 4 layers; name at most 4"),
        ({"layers": 4, "share": "some"}, "share is 'some'; legal are all, none, attention, ffn, groups:N"),
        ({"layers": 4, "merge": "layer:0"}, "merge is 'layer:0'; legal are mean, random, layer:N"),
        ({"layers": 4, "merge": "layer:5"}, "with share: all these are 4 of 4 each; give layer:1 to layer:4"),
        ({"layers": 4, "share": "groups:2", "merge": "layer:3"}, "groups:2 these are 2 of 4 each; give layer:1 to"),
        ({"layers": 4, "share": "none", "merge": "mean"}, "share: none no two of 4 layers share any; remove merge"),
    ],
)
def test_sharing_that_programs_would_read_differently_is_refused(knobs: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Student(name="small", start="albert", **knobs)


def test_knobs_without_a_shared_layer_keep_the_keys_that_they_had() -> None:
    """A student without these knobs has the same values in its keys as before there were any."""
    assert Shape(layers=2).key_values() == {"layers": 2, "hidden": None, "heads": None, "feed_forward": None}
    assert Shape(layers=2, share="all").key_values()["share"] == "all"


@reads("albert", "groups")
def test_groups_are_those_of_whole_numbers(oracle: Oracle) -> None:
    for case in oracle.content["expected"]:
        layers, groups = case["layers"], case["groups"]
        try:
            found: int | None = groups_of(f"groups:{groups}", layers)
        except ModelError:
            found = None
        differs = [turn * groups // layers for turn in range(layers)] != [
            int(turn / (layers / groups)) for turn in range(layers)
        ]
        assert case["of_layer"] == [turn * groups // layers for turn in range(layers)]
        assert found == (None if differs else groups)


@reads("albert", "parameters")
def test_it_has_as_many_parameters_as_the_literature_says(oracle: Oracle) -> None:
    """Of the shape of BERT-base with 30,000 words, by sharing and width of the embeddings; published in millions."""
    bert = transformers.BertConfig(vocab_size=30000)
    compared = 0
    for case in oracle.content["expected"]:
        config = albert_config(bert, 12, groups_of(case["shared"], 12), case["embedding"])
        stated = {SHARING: case["shared"]}
        with torch.device("meta"):
            named = transformers.AlbertModel(config).named_parameters()
        found = sum(value.numel() for name, value in named if not is_copied_part(stated, name))
        assert found == case["parameters"]
        if case["published_millions"] and case["embedding"] < 768:  # the paper's table has no map where E is H
            assert abs(found / 1e6 - case["published_millions"]) < 1
            compared += 1
    assert compared == 8
    small = albert_config(bert, 12, 1, 128)
    assert small.embedding_size == 128
    assert forward_flops(small.to_dict(), 128) > forward_flops(bert.to_dict(), 128), "fewer parameters, not less work"


@reads("albert", "shared_none", "shared_all", "shared_two_groups", "shared_attention", "shared_ffn")
def test_shared_layers_compute_what_the_reference_does(oracle: Oracle) -> None:
    """Layers of the reference's model, as those of a BERT, become an ALBERT; its embeddings and pooler are its own."""
    name = oracle.name.removeprefix("shared_")
    given, layers = oracle.tensors, (0, 2, 1, 3) if name == "two_groups" else (0, 1, 2, 3)
    assert oracle.content["expected_tensors"]["pooled"] == f"out.{name}.pooled"
    sizes = {"vocab_size": 17, "hidden_size": 24, "intermediate_size": 20, "max_position_embeddings": 16}
    teacher = tiny("", **sizes, hidden_act="gelu_new")
    with torch.no_grad():
        for layer, source in zip(teacher.encoder.layer, layers, strict=True):
            for ours, theirs in ALBERT_AND_BERT.items():
                for kind, value in layer.get_submodule(theirs).named_parameters():
                    there = f"in.weight.encoder.albert_layer_groups.{source}.albert_layers.0.{ours}.{kind}"
                    value.copy_(given[there])
    merge = None if name == "none" else "layer:1"
    shape = Shape(layers=4, embedding=8, share=name.replace("two_groups", "groups:2"), merge=merge)
    student = build_student("albert", teacher, shape, seed=0).double().eval()
    student.set_attn_implementation("eager")
    rest = {key.removeprefix("in.weight."): value for key, value in given.items() if key.startswith("in.weight.")}
    rest = {key: value for key, value in rest.items() if "albert_layer_groups" not in key}
    assert student.load_state_dict(rest, strict=False).unexpected_keys == []
    with torch.no_grad():
        found = student(input_ids=given["in.input_ids"], attention_mask=given["in.attention_mask"])
    torch.testing.assert_close(found.last_hidden_state, given[f"out.{name}.last"], **EXACT)
    torch.testing.assert_close(found.pooler_output, given[f"out.{name}.pooled"], **EXACT)


SHARED_SHAPE = {"start": "albert", "embedding": 8, "share": "groups:2"}
WIDTHS_EQUAL: dict[str, Any] = {"matching": {"attention": 0.0, "projection": "none"}}


def test_it_goes_through_both_phases_scores_and_an_export_that_holds_shared_weights_once(
    tiny_rows: Path, tmp_path: Path
) -> None:
    rows, base = tmp_path / "rows", write_tiny("bert", tmp_path / "base")
    prepare_rows(tiny_rows, RowsSlice(task=TaskSpec(name="tiny"), selection_rows=20), rows)
    teacher, first, student = tmp_path / "teacher", tmp_path / "first", tmp_path / "student"
    done(TRAINING, "finetune", TeacherSlice(task_type="classification", **FAST), teacher, rows=rows, base=base)
    shape = Shape(layers=4, embedding=8, share="groups:2")
    inner = IntermediateSlice(task_type="classification", **FAST, **WIDTHS_EQUAL, shape=shape, start="albert")
    done(TRAINING, "intermediate", inner, first, rows=rows, teacher=teacher)
    answers = AnswerSlice(task_type="classification", max_length=16, precision="fp32")
    done(TRAINING, "answer", answers, tmp_path / "answers", rows=rows, teacher=teacher)
    given = {"rows": rows, "teacher": teacher, "answers": tmp_path / "answers", "start": first}
    done(TRAINING, "prediction", PredictionSlice(task_type="classification", **FAST), student, **given)
    card = done(SCORING, "score", CLASSES, tmp_path / "card", [student], rows=rows, teacher=teacher)
    assert card["parameters"] == parameters_of(student) and card["flops"] > 0
    found = done(EXPORTING, "export", EXPORT, tmp_path / "export", model=student, rows=rows)
    assert found["made"] and found["equal_answers"] == 1 and found["largest_difference"] < 1e-4
    stored = sum(
        onnx.numpy_helper.to_array(one).nbytes
        for one in onnx.load(tmp_path / "export" / "model.onnx").graph.initializer
        if one.data_type == onnx.TensorProto.FLOAT
    )
    assert stored <= 4 * card["parameters"] + 4096, "each group once, however many turns it takes"


@pytest.mark.parametrize(
    ("shape", "sections", "sentence"),
    [
        ({}, {"steps": 40}, r"shares weights between its layers \(share: groups:2\), and method: feature-maps copies"),
        ({"share": "none"}, {"steps": 1}, "1 steps of feature-maps are too few, as its layers need 2 at least; give"),
        ({"share": "none"}, {"steps": 2}, ""),
        ({"share": "none"}, {"steps": 1, "feature_maps": {"transfer": "joint"}}, ""),
    ],
)
def test_feature_maps_need_layers_of_their_own_and_a_step_for_each(
    shape: dict[str, Any], sections: dict[str, Any], sentence: str
) -> None:
    """Found in the recipe; both ended a run whose teacher was trained already."""
    inner = {"intermediate": {"method": "feature-maps", **sections}}
    if not sentence:
        recipe(SHARED_SHAPE | shape, task_distillation=inner)
        return
    with pytest.raises(ValueError, match=sentence):
        recipe(SHARED_SHAPE | shape, task_distillation=inner)


def test_its_knobs_are_refused_for_another_start_and_a_wide_table_before_any_stage_runs(tmp_path: Path) -> None:
    base = write_tiny("bert", tmp_path / "bert")
    check_students(recipe(SHARED_SHAPE, task_distillation={"intermediate": WIDTHS_EQUAL}), base, {})
    check_students(
        recipe(SHARED_SHAPE | {"origin": "pretrained"}, task_distillation={"intermediate": WIDTHS_EQUAL}), base, {}
    )
    with pytest.raises(ModelError, match="embedding, share can be set with start: albert only, and it has start: top"):
        check_students(
            recipe(SHARED_SHAPE | {"start": "top"}, task_distillation={"intermediate": WIDTHS_EQUAL}), base, {}
        )
    with pytest.raises(ModelError, match="embedding is 64, and its layers are 16 wide; give it at most 16"):
        check_students(
            recipe(SHARED_SHAPE | {"embedding": 64}, task_distillation={"intermediate": WIDTHS_EQUAL}), base, {}
        )
    electra = write_tiny("electra", tmp_path / "electra")
    with pytest.raises(ModelError, match="copies the layers of a model among bert, and the teacher is of type electra"):
        check_students(recipe(SHARED_SHAPE), electra, {})


def test_what_is_made_of_shared_layers_shares_them_too() -> None:
    """The card's sentence: fewer bytes, no less time."""
    shared = {"name": "shared", "by": "distillation", "from": "teacher", "start": "albert", "shape": {"layers": 2}}
    own = shared | {"name": "own", "shape": {"layers": 2, "share": "none"}}
    each = shared | {"name": "each", "shape": {"layers": 2, "share": "groups:2"}}
    part = shared | {"name": "part", "shape": {"layers": 2, "share": "ffn"}}
    plain = {"name": "plain", "by": "distillation", "from": "teacher", "shape": {"layers": 2}}
    further = {"name": "further", "by": "neuron-pruning", "from": "shared"}
    values = {"name": "r", "task": "sst2", "data": {"holdout_rows": 2000}}
    every = [shared, own, each, part, plain, further]
    known = {one.name: one for one in Recipe.model_validate(values | {"candidates": every}).planned}
    assert {name: what_layers_share(name, known, None) for name in (*known, "teacher")} == {
        "shared": "all",
        "own": "",
        "each": "",
        "part": "ffn",
        "plain": "",
        "further": "all",
        "teacher": "",
    }
