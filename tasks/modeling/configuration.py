"""The configuration of an encoder: BERT's names for its sizes, and the mixer of each layer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from transformers import PretrainedConfig

from tasks.modeling.names import KERNELS, VERSION, in_each_layer


class LimbeckEncoderConfig(PretrainedConfig):
    """Sizes of an encoder. ``mixer`` names what stands in each layer; ``mixer_kernels`` are the widths of convolutions,
    ``mixer_rank`` that of factors and of Linformer's keys, ``mixer_features`` the features of FAVOR+, ``mixer_window``
    the width of local blocks. None leaves each to its mixer."""

    model_type = "limbeck-encoder"

    def __init__(
        self,
        vocab_size: int = 30522,
        hidden_size: int = 128,
        num_hidden_layers: int = 2,
        num_attention_heads: int = 2,
        intermediate_size: int = 512,
        mixer: str | Sequence[str] = "softmax",
        mixer_kernels: int | Sequence[int] | None = None,
        mixer_rank: int | None = None,
        mixer_features: int | None = None,
        mixer_window: int | None = None,
        hidden_act: str = "gelu",
        hidden_dropout_prob: float = 0.1,
        attention_probs_dropout_prob: float = 0.1,
        classifier_dropout: float | None = None,
        max_position_embeddings: int = 512,
        type_vocab_size: int = 2,
        initializer_range: float = 0.02,
        layer_norm_eps: float = 1e-12,
        pad_token_id: int | None = 0,
        limbeck_models: str = VERSION,
        **named: Any,
    ) -> None:
        super().__init__(**{"pad_token_id": pad_token_id, **named})
        self.vocab_size, self.hidden_size = vocab_size, hidden_size
        self.num_hidden_layers, self.num_attention_heads = num_hidden_layers, num_attention_heads
        self.intermediate_size, self.hidden_act = intermediate_size, hidden_act
        self.mixer = in_each_layer(mixer, num_hidden_layers)
        self.mixer_kernels = kernels_of(mixer_kernels, num_hidden_layers)
        self.mixer_rank, self.mixer_features, self.mixer_window = mixer_rank, mixer_features, mixer_window
        self.hidden_dropout_prob, self.attention_probs_dropout_prob = hidden_dropout_prob, attention_probs_dropout_prob
        self.classifier_dropout, self.max_position_embeddings = classifier_dropout, max_position_embeddings
        self.type_vocab_size, self.initializer_range = type_vocab_size, initializer_range
        self.layer_norm_eps, self.limbeck_models = layer_norm_eps, limbeck_models


def kernels_of(given: int | Sequence[int] | None, layers: int) -> list[int]:
    """Return the width of the convolution of each layer, by default those of the paper.

    Raises ValueError for an even width, which has no middle, and for another number of widths than layers.
    """
    if given is None:
        return [KERNELS[min(layer, len(KERNELS) - 1)] for layer in range(layers)]
    widths = [given] * layers if isinstance(given, int) else list(given)
    if len(widths) != layers or any(width % 2 == 0 or width < 1 for width in widths):
        raise ValueError(f"kernels are {widths} for {layers} layers; give one odd width, or one for each layer")
    return widths
