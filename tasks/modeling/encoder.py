"""An encoder with BERT's embeddings, norms and feed-forward blocks, and a mixer in each layer; modules have BERT's
names, so that weights of the same shape can be copied by name.

Paper: Devlin et al. 2018, BERT, arXiv:1810.04805. Shape letters: B batch, T tokens, D width, C classes.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel, initialization
from transformers.activations import ACT2FN
from transformers.modeling_outputs import BaseModelOutputWithPooling, SequenceClassifierOutput

from tasks.modeling.configuration import LimbeckEncoderConfig
from tasks.modeling.mixers.mixer import Mixer
from tasks.modeling.mixers.mixers import mixer_of


class Embeddings(nn.Module):
    """The sum of the embeddings of words, positions and segments, normalised."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        width = config.hidden_size
        self.word_embeddings = nn.Embedding(config.vocab_size, width, padding_idx=config.pad_token_id)
        self.position_embeddings = nn.Embedding(config.max_position_embeddings, width)
        self.token_type_embeddings = nn.Embedding(config.type_vocab_size, width)
        self.LayerNorm = nn.LayerNorm(width, eps=config.layer_norm_eps)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)

    def forward(self, ids_BT: Tensor, segments_BT: Tensor | None) -> Tensor:
        """Return the states below the first layer [B, T, D]."""
        if segments_BT is None:
            segments_BT = torch.zeros_like(ids_BT)
        places_T = torch.arange(ids_BT.shape[1], device=ids_BT.device)
        states_BTD = self.word_embeddings(ids_BT) + self.token_type_embeddings(segments_BT)
        return self.dropout(self.LayerNorm(states_BTD + self.position_embeddings(places_T)))


class Residual(nn.Module):
    """A linear map, or none, added to what stood before, normalised."""

    def __init__(self, config: Any, inner: int | None) -> None:
        super().__init__()
        if inner is not None:
            self.dense = nn.Linear(inner, config.hidden_size)
        self.has_map = inner is not None
        self.LayerNorm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)

    def forward(self, states: Tensor, before_BTD: Tensor) -> Tensor:
        """Return the normalised sum [B, T, D]."""
        added_BTD = self.dense(states) if self.has_map else states
        return self.LayerNorm(self.dropout(added_BTD) + before_BTD)


class Attention(nn.Module):
    """The first block of a layer: a mixer, its output map, the residual and its norm."""

    def __init__(self, config: Any, layer: int) -> None:
        super().__init__()
        mixer = mixer_of(config, layer)
        self.self = mixer
        self.output = Residual(config, config.hidden_size if mixer.has_output_map else None)

    def forward(self, states_BTD: Tensor, mask_BT: Tensor) -> Tensor:
        """Return the output of the block [B, T, D]."""
        return self.output(self.self(states_BTD, mask_BT), states_BTD)


class FeedForwardIn(nn.Module):
    """The first map of a feed-forward block, and its activation."""

    def __init__(self, config: Any, inner: int) -> None:
        super().__init__()
        self.dense, self.activation = nn.Linear(config.hidden_size, inner), ACT2FN[config.hidden_act]

    def forward(self, states_BTD: Tensor) -> Tensor:
        """Return the inner states of the block."""
        return self.activation(self.dense(states_BTD))


class Layer(nn.Module):
    """A mixer and a feed-forward block."""

    def __init__(self, config: Any, layer: int) -> None:
        super().__init__()
        self.attention = Attention(config, layer)
        inner = config.hidden_size if self.attention.self.is_flat else config.intermediate_size
        self.intermediate, self.output = FeedForwardIn(config, inner), Residual(config, inner)

    def forward(self, states_BTD: Tensor, mask_BT: Tensor) -> Tensor:
        """Return the states above the layer [B, T, D]."""
        read_BTD = self.attention(states_BTD, mask_BT)
        return self.output(self.intermediate(read_BTD), read_BTD)


class Layers(nn.Module):
    """The stack of layers."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.layer = nn.ModuleList(Layer(config, layer) for layer in range(config.num_hidden_layers))


class Pooler(nn.Module):
    """The state of the first token, mapped."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)

    def forward(self, states_BTD: Tensor) -> Tensor:
        """Return a vector for each text [B, D]."""
        return torch.tanh(self.dense(states_BTD[:, 0]))


class LimbeckPreTrainedModel(PreTrainedModel):
    """What all models of this kind share."""

    config_class = LimbeckEncoderConfig
    base_model_prefix = "limbeck"
    _supports_sdpa = True
    _no_split_modules = ["Layer"]

    def _init_weights(self, module: nn.Module) -> None:
        """Draw the weights of one module, as BERT does; those that were loaded stay."""
        with torch.no_grad():
            draw_weights(module, self.config.initializer_range)


def draw_weights(module: nn.Module, std: float) -> None:
    """Draw the weights of one module, but for those that transformers marks as loaded."""
    if isinstance(module, (nn.Linear, nn.Embedding)):
        initialization.normal_(module.weight, std=std)
        if isinstance(module, nn.Linear) and module.bias is not None:
            initialization.zeros_(module.bias)
        if isinstance(module, nn.Embedding) and module.padding_idx is not None:
            if not getattr(module.weight, "_is_hf_initialized", False):
                module.weight[module.padding_idx].zero_()
    elif isinstance(module, nn.LayerNorm):
        initialization.ones_(module.weight)
        initialization.zeros_(module.bias)
    elif isinstance(module, Mixer):
        module.draw_weights(std)


class LimbeckEncoderModel(LimbeckPreTrainedModel):
    """The encoder without a head."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.embeddings, self.encoder, self.pooler = Embeddings(config), Layers(config), Pooler(config)
        self.post_init()

    def get_input_embeddings(self) -> nn.Module:
        """Return the table of words."""
        return self.embeddings.word_embeddings

    def set_input_embeddings(self, value: Any) -> None:
        """Replace the table of words."""
        self.embeddings.word_embeddings = value

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        output_hidden_states: bool | None = None,
        return_dict: bool | None = None,
        **unused: Any,
    ) -> BaseModelOutputWithPooling:
        """Return the last states, the pooled vector, and on request the states of all layers.

        Raises ValueError for texts longer than the model's positions.
        """
        require_within_positions(input_ids.shape[1], self.config.max_position_embeddings)
        mask_BT = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        states_BTD = self.embeddings(input_ids, token_type_ids)
        every = [states_BTD]
        for layer in self.encoder.layer:
            states_BTD = layer(states_BTD, mask_BT)
            every.append(states_BTD)
        return BaseModelOutputWithPooling(
            last_hidden_state=states_BTD,
            pooler_output=self.pooler(states_BTD),
            hidden_states=tuple(every) if output_hidden_states else None,
        )


def require_within_positions(tokens: int, longest: int) -> None:
    """Raise ValueError for texts longer than a model's positions; a traced graph has bounds of its own."""
    if not torch.compiler.is_exporting() and tokens > longest:
        raise ValueError(
            f"the input has {tokens} tokens, and this model takes at most {longest}; truncate the text "
            f"(truncation=True, max_length={longest})"
        )


class LimbeckEncoderForSequenceClassification(LimbeckPreTrainedModel):
    """The encoder with one vector of logits for each text."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.num_labels, self.limbeck = config.num_labels, LimbeckEncoderModel(config)
        share = config.hidden_dropout_prob if config.classifier_dropout is None else config.classifier_dropout
        self.dropout, self.classifier = nn.Dropout(share), nn.Linear(config.hidden_size, config.num_labels)
        self.post_init()

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, labels: Tensor | None = None, **named: Any
    ) -> SequenceClassifierOutput:
        """Return the logits [B, C], and with labels their loss."""
        found = self.limbeck(input_ids, attention_mask, **named)
        logits_BC = self.classifier(self.dropout(found.pooler_output))
        return SequenceClassifierOutput(
            loss=None if labels is None else loss_of(logits_BC, labels),
            logits=logits_BC,
            hidden_states=found.hidden_states,
        )


def loss_of(logits_BC: Tensor, labels: Tensor) -> Tensor:
    """Return the squared error of one number a text, the cross entropy of classes [B], or that of label sets [B, C]."""
    if logits_BC.shape[-1] == 1:
        return nn.functional.mse_loss(logits_BC.squeeze(-1), labels.to(logits_BC.dtype).flatten())
    if labels.ndim == 2:
        return nn.functional.binary_cross_entropy_with_logits(logits_BC, labels.to(logits_BC.dtype))
    return nn.functional.cross_entropy(logits_BC, labels)
