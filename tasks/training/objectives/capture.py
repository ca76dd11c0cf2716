"""Reading a model's inner signals: outputs, hidden states, attention scores, queries, keys and values, in one pass and
at the mapped layers only.

Transformers' own ``output_attentions`` gives probabilities after dropout, or nothing at all under a fused kernel. The
scores QK^T / sqrt(head size), and queries, keys and values, are therefore read in Limbeck's own attention functions
(``tasks/training/models/attention.py``), also under a fused kernel. In a family with its own attention code, queries,
keys and values are read at the outputs of its linear maps; signals that cannot be read are refused
(``tasks/architectures/requirements.py``).

Shape letters: B batch, T tokens, D width, H heads, K head size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from tasks.architectures.architecture import HIDDEN, SCORES, STATES
from tasks.architectures.known_architectures import architecture_of
from tasks.architectures.requirements import require_signal
from tasks.errors import ModelError
from tasks.methods.layers.layer_dropping import encoder_layers
from tasks.training.models.attention import Attended, open_to_watch, own_attention, scored, watched_by

if TYPE_CHECKING:
    from tasks.training.data.encoded import Batch
    from tasks.training.data.rows import TaskHead


@dataclass(frozen=True)
class Signals:
    """The signals of one forward pass: the outputs of a head by name, rows first, and by layer hidden states, scores
    [B, H, T, T], and queries, keys and values [B, H, T, K]."""

    outputs: dict[str, Tensor]
    hidden: dict[int, Tensor]
    scores: dict[int, Tensor]
    states: dict[int, dict[str, Tensor]] = field(default_factory=dict)
    """Queries, keys and values, by layer and by the names query, key and value."""


def inputs_of_layers(model: Any, batch: Batch) -> dict[str, Tensor]:
    """Return the inputs of a model whose layers are called without its head; that of a decoder counts positions from
    the first token of a text, behind padding."""
    given, located = batch.inputs(model), getattr(model, "located", None)
    return given if located is None else located(given)


class Capture:
    """Runs a model and returns the requested signals: the outputs of ``head`` if it is given, and those of layers.
    ``hidden`` counts from 0 (embeddings); ``attention`` and ``states`` list layers from 0."""

    def __init__(
        self,
        model: Any,
        head: TaskHead | None = None,
        /,
        *,
        hidden: Sequence[int] = (),
        attention: Sequence[int] = (),
        states: Sequence[int] = (),
    ) -> None:
        self.head = head
        self.model, self.hidden, self.attention, self.states = (
            own_attention(model),
            tuple(hidden),
            tuple(attention),
            tuple(states),
        )
        for signal, wanted in ((HIDDEN, hidden), (SCORES, attention), (STATES, states)):
            if wanted:
                require_signal(model.config, signal)

    def __call__(self, **inputs: Tensor) -> Signals:
        self.layer, self.seen = 0, Signals({}, {}, {})
        with self.open():
            out = self.model(**inputs, output_hidden_states=bool(self.hidden), return_dict=True)
        hidden = out.hidden_states if self.hidden else ()
        outputs = {} if self.head is None else outputs_of(self.head, out)
        return replace(self.seen, outputs=outputs, hidden={index: hidden[index] for index in self.hidden})

    def open(self) -> AbstractContextManager[None]:
        """Return the context in which this model's attention is read, if any of its signals are requested."""
        if not self.attention and not self.states:
            return nullcontext()
        return watched_by(self.see) if open_to_watch(self.model) else self.at_the_maps()

    @contextmanager
    def at_the_maps(self) -> Iterator[None]:
        """Read queries, keys and values at the outputs of a layer's linear maps."""
        layers, maps = encoder_layers(self.model), architecture_of(self.model.config).state_maps
        hooks = [
            layers[layer].get_submodule(path).register_forward_hook(self.keep(layer, name))
            for layer in self.states
            for name, path in maps.items()
        ]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    def keep(self, layer: int, name: str) -> Callable[[nn.Module, Any, Tensor], None]:
        """Return a hook that stores the first output of a map; a map that also projects positions does so after the
        text."""

        def hook(module: nn.Module, given: Any, made_BTD: Tensor) -> None:
            split_BHTK = made_BTD.unflatten(-1, (self.model.config.num_attention_heads, -1)).transpose(1, 2)
            self.seen.states.setdefault(layer, {}).setdefault(name, split_BHTK)

        return hook

    def see(self, layer: Attended) -> None:
        """Store the requested signals of a layer."""
        if self.layer in self.attention:
            self.seen.scores[self.layer] = layer.scores()
        if self.layer in self.states:
            self.seen.states[self.layer] = {"query": layer.queries, "key": layer.keys, "value": layer.values}
        self.layer += 1


def outputs_of(head: TaskHead, out: Any) -> dict[str, Tensor]:
    """Return the outputs of a head by name, of what a model of transformers returned."""
    return {output.name: out[output.name] for output in head.outputs}


def check_capture(capture: Capture, inputs: dict[str, Tensor], mask_BT: Tensor) -> None:
    """Check on one batch that two passes agree (no dropout) and that softmax(scores + mask) gives the model's own
    probabilities."""
    with torch.inference_mode():
        shown, again = (capture(**inputs) for _ in range(2))
    if not all(torch.equal(first, second) for first, second in zip(tensors(shown), tensors(again), strict=True)):
        raise ModelError("the teacher's predictions differ between two calls: dropout is still active")
    if open_to_watch(capture.model):
        check_scores(capture.model, scores_of(shown), inputs, mask_BT)


def check_scores(model: Any, scores: dict[int, Tensor], inputs: dict[str, Tensor], mask_BT: Tensor) -> None:
    """Check the scores of each layer against the attention probabilities of transformers, at valid tokens."""
    if not scores:
        return
    before, architecture = model.config._attn_implementation, architecture_of(model.config)
    model.set_attn_implementation("eager")
    with torch.inference_mode():
        own = model(**inputs, output_attentions=True).attentions
    model.set_attn_implementation(before)
    for layer, scores_BHTT in scores.items():
        unseen_BTT = (mask_BT[:, None, :] == 0) | beyond_window(mask_BT, architecture.reach(model.config, layer))
        rebuilt = scores_BHTT.masked_fill(unseen_BTT[:, None], -torch.inf).softmax(-1)
        first, second = (shares_BHTT.float().transpose(1, 2)[mask_BT.bool()] for shares_BHTT in (rebuilt, own[layer]))
        if not torch.allclose(first, second, atol=1e-4):
            raise ModelError(
                f"the attention scores read from layer {layer} do not give this {model.config.model_type}'s own "
                f"probabilities"
            )


def beyond_window(mask_BT: Tensor, reach: int | None) -> Tensor:
    """Return which pairs of tokens [1, T, T] lie farther apart than a local layer attends."""
    at_T = torch.arange(mask_BT.shape[1], device=mask_BT.device)
    apart_TT = (at_T[:, None] - at_T[None, :]).abs()
    return (apart_TT > (len(at_T) if reach is None else reach))[None]


def tensors(signals: Signals) -> list[Tensor]:
    """Return all tensors of a forward pass."""
    states = [state for by_name in signals.states.values() for state in by_name.values()]
    return [*signals.outputs.values(), *signals.hidden.values(), *signals.scores.values(), *states]


def scores_of(signals: Signals) -> dict[int, Tensor]:
    """Return scores by layer: as captured, or computed from the captured queries and keys."""
    return signals.scores | {
        layer: scored(states["query"], states["key"], None) for layer, states in signals.states.items()
    }
