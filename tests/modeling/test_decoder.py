"""A language model with other attentions made from a GPT-2: what is copied, padding before a text, words that come
later, what it remembers, how it is kept, and its graph."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from tasks.architectures.known_architectures import architecture_of
from tasks.catalog import TaskSpec
from tasks.errors import LimbeckError, ModelError
from tasks.exports.jobs import export
from tasks.modeling.mixers.linear import read_before
from tasks.modeling.mixers.mixers import mixer_of
from tasks.modeling.names import MIXER_NAMES, reads_back
from tasks.modeling.registration import needs_of
from tasks.ports.rows.prepared import prepare_rows
from tasks.preflight import check_students
from tasks.recipe.recipe import Recipe
from tasks.recipe.slices import ExportSlice, RowsSlice
from tasks.recipe.students import Shape
from tasks.scoring.predict import predict_texts
from tasks.task_types.heads import HEADS
from tasks.task_types.next_words.document import NATS
from tasks.training.data.rows import Task, load_tokenizer
from tasks.training.models.students import build_student, load_classifier, save_model
from tests.task_types.next_words.tables import documents, write_decoder, write_documents
from tests.task_types.next_words.test_chain import values_for
from tests.task_types.seq2seq.test_graphs import job

START = "limbeck-decoder"
CPU = torch.device("cpu")
TASK = Task("texts", "next-words", None, "word_perplexity", False, HEADS["next-words"])
IDS_BT = torch.tensor([[0, 0, 30, 31, 32, 33, 34], [40, 41, 42, 43, 44, 45, 46]])
MASK_BT = torch.tensor([[0, 0, 1, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1, 1]])
THAT_WRITE = [name for name in MIXER_NAMES if reads_back(name)]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny GPT-2 of four layers."""
    return write_decoder(tmp_path_factory.mktemp("base") / "gpt2", "gpt2")


@pytest.fixture(scope="module")
def teacher(base: Path) -> Any:
    """A language model with weights that make its answers depend on what it reads."""
    model = load_classifier(base, TASK, CPU).eval()
    torch.manual_seed(0)
    with torch.no_grad():
        for value in model.parameters():
            value.add_(torch.randn_like(value) * 0.2)
    return model


def student_of(teacher: Any, **shape: Any) -> Any:
    """Return a student that is not trained."""
    return build_student(START, teacher, Shape(**{"layers": 4, **shape}), seed=0).eval()


def logits_of(model: Any, ids_BT: torch.Tensor = IDS_BT, mask_BT: torch.Tensor = MASK_BT) -> torch.Tensor:
    """Return the logits of each next word."""
    with torch.no_grad():
        logits: torch.Tensor = model(input_ids=ids_BT, attention_mask=mask_BT).logits
    return logits


def test_with_softmax_in_all_layers_it_computes_what_the_gpt2_does(teacher: Any) -> None:
    ours, theirs = logits_of(student_of(teacher)), logits_of(teacher)
    torch.testing.assert_close(ours[MASK_BT.bool()], theirs[MASK_BT.bool()], rtol=1e-4, atol=1e-4)


def test_what_has_the_same_shape_is_copied_and_drawn_copies_nothing(teacher: Any) -> None:
    half = student_of(teacher, layers=2, mixer=("linear", "lsra"), positions=32).transformer
    theirs, (linear, lsra) = teacher.transformer.h, half.h
    assert torch.equal(linear.attn.mixer.key.weight, theirs[0].attn.c_attn.weight[:, 32:64].T)
    assert torch.equal(linear.attn.mixer.value.bias, theirs[0].attn.c_attn.bias[64:])
    assert torch.equal(linear.attn.out_proj.weight, theirs[0].attn.c_proj.weight.T)
    assert torch.equal(linear.mlp.c_fc.weight, theirs[0].mlp.c_fc.weight)
    assert lsra.mlp.c_fc.weight.shape == (32, 32) and not hasattr(lsra.attn, "out_proj")
    assert torch.equal(lsra.ln_2.weight, theirs[3].ln_2.weight)
    assert torch.equal(half.wpe.weight, teacher.transformer.wpe.weight[:32])
    drawn = student_of(teacher, mixer="light", drawn=True, hidden=16, heads=2, feed_forward=24).transformer
    assert drawn.wte.weight.shape[1] == 16 and drawn.h[0].mlp.c_fc.weight.shape == (16, 24)


@pytest.mark.parametrize("mixer", THAT_WRITE)
def test_a_further_token_costs_its_own_share_of_a_text(teacher: Any, mixer: str) -> None:
    """Products and sums of the mixers, for the last token of 48 and for all of them; that of the head is not in it."""
    body = student_of(teacher, layers=2, mixer=mixer).transformer
    ids_BT = torch.arange(48)[None] % 40 + 20
    with torch.no_grad():
        memory = body(input_ids=ids_BT[:, :-1], use_cache=True).past_key_values
        with FlopCounterMode(display=False) as step:
            last = body(input_ids=ids_BT[:, -1:], past_key_values=memory).last_hidden_state
        with FlopCounterMode(display=False) as whole:
            every = body(input_ids=ids_BT).last_hidden_state
    torch.testing.assert_close(last[:, -1], every[:, -1], rtol=1e-4, atol=1e-4)
    assert step.get_total_flops() < whole.get_total_flops() / 24


def flops_of_a_further_token(mixer: str, tokens: int) -> int:
    """Return the FLOPs of the last of so many tokens in one layer with a head of 64, without those of maps."""
    sizes: dict[str, Any] = {"num_attention_heads": 1, "hidden_size": 64, "attention_probs_dropout_prob": 0.0}
    sizes |= {"mixer": [mixer], "max_position_embeddings": tokens}
    mixing = mixer_of(SimpleNamespace(**sizes), 0, causal=True)
    states_BTD, mask_BT = torch.randn(1, tokens, 64), torch.ones(1, tokens)
    with torch.no_grad():
        kept_BTR = mixing.kept(states_BTD)
        with FlopCounterMode(display=False) as counter:
            mixing.read(states_BTD[:, -1:], kept_BTR, mask_BT)
    return int(counter.get_total_flops()) - 2 * 64 * 64


@pytest.mark.parametrize("tokens", [64, 65, 512, 1024])
def test_a_further_token_costs_no_more_with_linear_attention_than_with_softmax(tokens: int) -> None:
    """It had summed keys and values of all tokens before it, which costs half the size of a head times as much."""
    linear, softmax = (flops_of_a_further_token(mixer, tokens) for mixer in ("linear", "softmax"))
    assert softmax == 4 * tokens * 64 and linear <= softmax


@pytest.mark.parametrize("mixer", THAT_WRITE)
def test_it_reads_no_padding_and_no_later_word_and_remembers_what_it_read(teacher: Any, mixer: str) -> None:
    """A text alone and behind padding; another last word; a text that goes on with and without a memory."""
    model = student_of(teacher, layers=2, mixer=mixer)
    both = logits_of(model)
    alone = logits_of(model, IDS_BT[:1, 2:], MASK_BT[:1, 2:])
    torch.testing.assert_close(alone, both[:1, 2:], rtol=1e-3, atol=1e-4)
    other = logits_of(model, torch.cat([IDS_BT[:, :-1], torch.tensor([[50], [51]])], 1))
    torch.testing.assert_close(other[:, 2:-1], both[:, 2:-1], rtol=0, atol=1e-6)
    assert not torch.allclose(other[:, -1], both[:, -1])
    given = {"input_ids": IDS_BT, "attention_mask": MASK_BT, "do_sample": False, "max_new_tokens": 8, "pad_token_id": 0}
    with torch.no_grad():
        written = [model.generate(**given, use_cache=kept) for kept in (True, False)]
    assert torch.equal(*written)


def test_it_is_saved_reloaded_and_loses_layers_with_their_mixers(teacher: Any, base: Path, tmp_path: Path) -> None:
    student = student_of(teacher, mixer=("linear", "light", "local", "dynamic"))
    save_model(student, load_tokenizer(base), tmp_path / "made")
    loaded = load_classifier(tmp_path / "made", TASK, CPU).eval()
    assert torch.equal(logits_of(loaded), logits_of(student))
    with torch.no_grad():  # it has the step of its task type
        assert loaded(input_ids=IDS_BT, attention_mask=MASK_BT)[NATS].shape == IDS_BT.shape
    assert "(linear, light, local, dynamic) is not in transformers" in needs_of(tmp_path / "made")
    half = build_student("teacher", loaded, Shape(layers=2), seed=0)
    assert half.config.mixer == ["linear", "dynamic"] and half.config.mixer_kernels == [3, 31]


IN_TWO_MODELS = [
    ("lsra", "dynamic", "light", "synth-random-factorized+softmax"),
    ("local", "linear", "synth-random", "synth-dense-factorized"),
]


@pytest.mark.slow
@pytest.mark.parametrize("mixers", IN_TWO_MODELS, ids=["convolutions", "others"])
def test_its_graph_goes_on_as_it_does(teacher: Any, base: Path, tmp_path: Path, mixers: tuple[str, ...]) -> None:
    knobs = RowsSlice(task=TaskSpec(name="words", kind="next-words"), selection_rows=4, purge=False)
    prepare_rows(write_documents(tmp_path / "table", 40), knobs, tmp_path / "rows")
    save_model(student_of(teacher, mixer=mixers), load_tokenizer(base), tmp_path / "model")
    full = ExportSlice(task_type="next-words", max_length=32)
    facts = export(job(tmp_path / "graph", full, model=tmp_path / "model", rows=tmp_path / "rows"))
    assert facts["made"] and 0 < facts["largest_difference"] < 1e-4, facts
    assert ("local and linear reads a text with products of all pairs" in str(facts.get("note"))) == ("local" in mixers)
    ours, theirs = (predict_texts(tmp_path / one, documents(3), max_length=32) for one in ("graph", "model"))
    both = [[float(one["log_likelihood"]) for one in each] for each in (ours, theirs)]  # type: ignore[arg-type]
    np.testing.assert_allclose(*both, rtol=1e-5)


def test_a_graph_that_grows_with_the_square_is_told(teacher: Any) -> None:
    """The checkpoint reads by blocks; its graph has one way for whole texts and single words."""
    for mixers, named in ((("softmax", "lsra"), ""), (("linear", "local"), "linear and local")):
        config = student_of(teacher, layers=2, mixer=mixers).config
        note = architecture_of(config).graph_note(config)
        assert named in note and bool(note) == bool(named)


@pytest.mark.parametrize(
    ("student", "sentence"),
    [
        ({"mixer": "favor"}, "mixer is favor, which cannot write"),
        ({"mixer": ["linear"]}, "1 mixers are named for 2 layers"),
        ({"mixer": "linear", "hidden": 16}, "so it has its widths; remove hidden, or set drawn: true"),
        (
            {"mixer": "lsra", "start": "limbeck-encoder"},
            "starts from limbeck-encoder, which has heads for answers about a whole text",
        ),
    ],
)
def test_what_cannot_be_built_is_refused_in_a_sentence(base: Path, student: dict[str, Any], sentence: str) -> None:
    values = values_for(base, base)
    values |= {"students": [{"name": "one", "layers": 2, "start": START, **student}]}
    with pytest.raises((LimbeckError, ValueError), match=sentence):
        check_students(Recipe.model_validate(values), base, {})


def test_positions_that_no_weights_exist_for_are_refused(teacher: Any) -> None:
    with pytest.raises(ModelError, match="positions is 256, and the teacher has embeddings of 128"):
        student_of(teacher, layers=2, mixer="linear", positions=256)
    assert student_of(teacher, layers=2, mixer="linear", positions=256, drawn=True).config.n_positions == 256


@pytest.mark.parametrize("tokens", [1, 63, 64, 65, 150])
def test_linear_attention_by_blocks_is_that_of_each_token(tokens: int) -> None:
    """Sums of a block and of all blocks before it, for whole texts and for their last tokens."""
    torch.manual_seed(0)
    query, key = (torch.rand(2, 3, 160, 5, dtype=torch.float64) for _ in range(2))
    value = torch.randn(2, 3, 160, 4, dtype=torch.float64)
    sums = (key[..., None] * value[..., None, :]).cumsum(2)
    whole = (query[..., None, :] @ sums).squeeze(-2) / ((query * key.cumsum(2)).sum(-1, keepdim=True) + 1e-6)
    last = read_before(query[:, :, 160 - tokens :], key, value, 1e-6)
    torch.testing.assert_close(last, whole[:, :, 160 - tokens :])


def test_only_a_language_model_is_made_into_one(teacher: Any) -> None:
    with pytest.raises(ModelError, match="its teacher is a GPT2Model"):
        build_student(START, teacher.transformer, Shape(layers=2, mixer="lsra"), seed=0)
