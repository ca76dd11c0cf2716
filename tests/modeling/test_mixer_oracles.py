"""Mixers equal the reference implementations' own numbers, where these are present."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from tasks.modeling.mixers.dynamic import dynamic_convolution
from tasks.modeling.mixers.favor import drawn_directions, favor_attention
from tasks.modeling.mixers.light import light_convolution
from tasks.modeling.mixers.linear import linear_attention
from tasks.modeling.mixers.linformer import Linformer
from tasks.modeling.mixers.lsra import DynamicLsra, Lsra
from tasks.modeling.mixers.softmax import softmax_attention
from tasks.modeling.mixers.synthesizers.dense import dense_logits
from tasks.modeling.mixers.synthesizers.random_factorized import factorized_logits
from tasks.modeling.mixers.synthesizers.random_table import table_logits
from tasks.modeling.mixers.synthesizers.synthesizer import blended, synthetic_attention
from tests.methods.oracles import EXACT, Oracle, reads

SINGLE = {"rtol": 1e-5, "atol": 1e-6}
"""References that take the softmax in float32 whatever they are given."""
ALPHA = "_alpha"


def equals(oracle: Oracle, out: Tensor, learned: dict[str, Tensor], exact: dict[str, float]) -> None:
    """Compare an output, and the gradient of sum(out cos i) where the reference has one."""
    t = oracle.tensors
    torch.testing.assert_close(out, t[f"out.{oracle.name}"].double(), **exact)
    if not learned:
        return
    places = torch.arange(out.numel(), dtype=torch.float64).reshape(out.shape)
    (out * places.cos()).sum().backward()
    for name, value in learned.items():
        torch.testing.assert_close(value.grad, t[f"grad.{oracle.name}.{name}"], **exact)


def batch_first(states_TBD: Tensor) -> Tensor:
    """Return states with the batch first, or back."""
    return states_TBD.transpose(0, 1)


def given(oracle: Oracle) -> dict[str, Tensor]:
    """Return a case's own inputs by their short names."""
    t = oracle.tensors
    return {name: t[place] for name, place in oracle.content["inputs"].items() if place in t}


@reads(
    "lite_transformer",
    "light_centred",
    "light_causal",
    "light_wide_causal",
    "light_centred_wide",
    "light_no_softmax",
    "light_with_linear",
)
def test_lightweight_convolution(oracle: Oracle) -> None:
    t, knobs = given(oracle), oracle.knobs
    x = t["x"].requires_grad_(True)
    weight_HK = t["weight"].squeeze(1)
    shares_HK = weight_HK.softmax(-1) if knobs.weight_softmax else weight_HK
    states = batch_first(x)
    if "linear1.weight" in t:
        states = F.linear(states, t["linear1.weight"], t["linear1.bias"])
    out = light_convolution(states, shares_HK, causal=knobs.padding_l == knobs.kernel_size - 1)
    if "linear2.weight" in t:
        out = F.linear(out, t["linear2.weight"], t["linear2.bias"])
    equals(oracle, batch_first(out), {"x": x}, SINGLE)


@reads(
    "lite_transformer",
    "dynamic_centred_glu",
    "dynamic_causal_glu",
    "dynamic_centred",
    "dynamic_causal_wider_than_text",
)
def test_dynamic_convolution(oracle: Oracle) -> None:
    t, knobs = given(oracle), oracle.knobs
    x = t["x"].requires_grad_(True)
    states = F.linear(batch_first(x), t["linear1.weight"], t["linear1.bias"])
    states = F.glu(states, -1) if knobs.glu else states
    shares = F.linear(states, t["weight_linear.weight"]).unflatten(-1, (knobs.num_heads, -1)).softmax(-1)
    out = dynamic_convolution(states, shares, causal=knobs.padding_l == knobs.kernel_size - 1)
    out = F.linear(out, t["linear2.weight"], t["linear2.bias"])
    equals(oracle, batch_first(out), {"x": x}, SINGLE)


OURS = {
    "q_proj": "query",
    "k_proj": "key",
    "v_proj": "value",
    "linear1": "value",
    "weight_linear": "shares",
}


def lsra_of(t: dict[str, Tensor], of: str, kernel: int) -> Lsra:
    """Return the mixer with the reference's weights."""
    config = SimpleNamespace(
        hidden_size=16,
        num_attention_heads=4,
        max_position_embeddings=16,
        attention_probs_dropout_prob=0.0,
        mixer_kernels=[kernel],
        mixer_rank=None,
    )
    mixer = (DynamicLsra if "dynamic" in of else Lsra)(config).double().eval()
    # the reference gives the convolution 4 heads, and the attention 2
    short: Any = mixer.short
    short.heads = 4
    with torch.no_grad():
        for number, (half, output) in enumerate(
            ((mixer.attention, mixer.attention_output), (mixer.short, mixer.short_output))
        ):
            own = {
                name.removeprefix(f"in.{of}.self_attn.branches.{number}."): value
                for name, value in t.items()
                if name.startswith(f"in.{of}.self_attn.branches.{number}.")
            }
            for name, value in own.items():
                part, _, kind = name.rpartition(".")
                if part in ("out_proj", "linear2"):
                    output.get_parameter(kind).copy_(value)
                elif part:
                    module: Any = half.get_submodule(OURS[part])
                    setattr(module, kind, torch.nn.Parameter(value.clone()))
                else:
                    half.weight = torch.nn.Parameter(value.squeeze(1).clone())
    return mixer


def layer_of(t: dict[str, Tensor], of: str, x_BTD: Tensor, mask_BT: Tensor, kernel: int, *, before: bool) -> Tensor:
    """Return the reference's layer around our mixer: residual, norm, and the flat feed-forward block."""

    def norm(name: str, states: Tensor) -> Tensor:
        return F.layer_norm(states, (16,), t[f"in.{of}.{name}.weight"], t[f"in.{of}.{name}.bias"])

    def mapped(name: str, states: Tensor) -> Tensor:
        return F.linear(states, t[f"in.{of}.{name}.weight"], t[f"in.{of}.{name}.bias"])

    mixer = lsra_of(t, of, kernel)
    first, last = "self_attn_layer_norm", "final_layer_norm"
    states = x_BTD + mixer(norm(first, x_BTD) if before else x_BTD, mask_BT)
    states = states if before else norm(first, states)
    inner = norm(last, states) if before else states
    states = states + mapped("fc2", mapped("fc1", inner).relu())
    return states if before else norm(last, states)


@reads(
    "lite_transformer",
    "lsra_encoder_layer_light_post",
    "lsra_encoder_layer_light_post_row1_alone",
    "lsra_encoder_layer_dynamic_pre",
    "lsra_encoder_layer_dynamic_pre_row1_alone",
)
def test_lsra_is_the_reference_where_no_padding_reaches_a_token(oracle: Oracle) -> None:
    """Rows without padding, and the row alone: padded in the batch, it is here what it is alone."""
    t, of = oracle.tensors, oracle.name.removesuffix("_row1_alone")
    expected = batch_first(t[f"out.{oracle.content['name']}"])
    x, lengths = batch_first(t["in.x"]), t["in.lengths"]
    mask_BT = (torch.arange(x.shape[1])[None] < lengths[:, None]).double()
    kernel = Oracle("lite_transformer", of).knobs.kernel_size
    with torch.no_grad():
        out = layer_of(t, of, x, mask_BT, kernel, before=of.endswith("pre"))
    if oracle.name == of:
        torch.testing.assert_close(out[0], expected[0], **SINGLE)
    else:
        torch.testing.assert_close(out[1, : lengths[1]], expected[0], **SINGLE)


def logits_of(t: dict[str, Tensor], name: str) -> Tensor:
    """Return the synthetic logits of a case [B or 1, H, T, T]."""
    query = t["q"].transpose(1, 2) if "q" in t else None
    tokens = t["v"].shape[1]
    if name.startswith("factorized_paper"):
        left, right = (t[part].permute(1, 2, 0) for part in ("R1", "R2"))
        return factorized_logits(left, right, tokens)
    if name.startswith("random"):
        return table_logits(t["R"].transpose(0, 1), tokens)
    assert query is not None
    return dense_logits(query, t["pi.kernel"], tokens)


@reads(
    "synthesizer",
    "random",
    "random_causal",
    "factorized_paper",
    "factorized_paper_causal",
    "dense_minus",
    "dense_minus_causal",
    "random_plus_alpha",
    "random_plus_alpha_causal",
    "dense_plus_alpha",
    "dense_plus_alpha_causal",
)
def test_synthesizers(oracle: Oracle) -> None:
    t, name = given(oracle), oracle.name
    value = t["v"].transpose(1, 2)
    logits = logits_of(t, name)
    if ALPHA in name:
        scores = t["q"].transpose(1, 2) @ t["k"].transpose(1, 2).transpose(2, 3)
        logits = blended(scores, logits, t["alpha"])
    mask_BT = torch.ones(value.shape[0], value.shape[2], dtype=torch.float64)
    out = synthetic_attention(logits, value, mask_BT, causal=name.endswith("causal"))
    equals(oracle, out.transpose(1, 2), {}, EXACT if "paper" in name else SINGLE)


@reads("efficient_attention", "linear", "linear_padded", "linear_causal", "favor", "favor_causal")
def test_attention_by_features(oracle: Oracle) -> None:
    t, name = given(oracle), oracle.name
    learned = {part: t[part].requires_grad_(True) for part in ("q", "k", "v")}
    mask_BT = t["keep"].double() if "keep" in t else torch.ones(2, 11, dtype=torch.float64)
    causal = name.endswith("causal")
    if name.startswith("linear"):
        out = linear_attention(t["q"], t["k"], t["v"], mask_BT, causal=causal)
    else:
        out = favor_attention(t["q"], t["k"], t["v"], t["projection"], mask_BT, causal=causal)
    equals(oracle, out, learned, EXACT)


@reads("efficient_attention", "linformer", "linformer_shorter")
def test_linformer(oracle: Oracle) -> None:
    t, source = oracle.tensors, oracle.content["inputs"]
    config = SimpleNamespace(
        hidden_size=16,
        num_attention_heads=2,
        max_position_embeddings=11,
        attention_probs_dropout_prob=0.0,
        mixer_rank=4,
    )
    mixer = Linformer(config).double().eval()
    with torch.no_grad():
        for ours, name in (("query", "to_q"), ("key", "to_k"), ("value", "to_v")):
            mixer.get_submodule(ours).get_parameter("weight").copy_(t[source[f"{name}.weight"]])
            mixer.get_submodule(ours).get_parameter("bias").zero_()
        mixer.of_keys.copy_(t[source["proj_k"]])
        mixer.of_values.copy_(t[source["proj_v"]])
    x = (t["in.x"][:, :7] if oracle.name.endswith("shorter") else t["in.x"]).requires_grad_(True)
    read = mixer(x, torch.ones(x.shape[:2], dtype=torch.float64))
    out = F.linear(read, t[source["to_out.weight"]], t[source["to_out.bias"]])
    equals(oracle, out, {"x": x}, EXACT)


@reads("efficient_attention", "favor_root_mean_square_error_of_softmax_attention_by_features")
def test_favor_comes_near_softmax_as_fast_as_the_reference(oracle: Oracle) -> None:
    """Mean over ten draws of directions; the reference's own error falls as slowly."""
    t, mask_BT = oracle.tensors, torch.ones(2, 11, dtype=torch.float64)
    exact = softmax_attention(t["in.q"], t["in.k"], t["in.v"], mask_BT)
    torch.testing.assert_close(exact, t["out.softmax"], **EXACT)
    torch.manual_seed(0)
    for features, expected in oracle.content.items():
        near = [
            favor_attention(t["in.q"], t["in.k"], t["in.v"], drawn_directions(int(features), 8).double(), mask_BT)
            for _ in range(10)
        ]
        error = sum(float((one - exact).square().mean().sqrt()) for one in near) / len(near)
        assert error == pytest.approx(expected, rel=0.25)
