"""The configurations: BERT's names for the sizes of an encoder, Marian's for those of a translator, GPT-2's for those
of a language model, and the mixer of each layer."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from transformers import GPT2Config, MarianConfig, PretrainedConfig

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


class LimbeckSeq2SeqConfig(MarianConfig):
    """Sizes of a translator. ``mixer`` and ``mixer_kernels`` are of its encoder, ``decoder_mixer`` and
    ``decoder_kernels`` of its decoder; the other settings of mixers are as in ``LimbeckEncoderConfig``."""

    model_type = "limbeck-seq2seq"

    def __init__(
        self,
        mixer: str | Sequence[str] = "softmax",
        decoder_mixer: str | Sequence[str] = "softmax",
        mixer_kernels: int | Sequence[int] | None = None,
        decoder_kernels: int | Sequence[int] | None = None,
        mixer_rank: int | None = None,
        mixer_features: int | None = None,
        mixer_window: int | None = None,
        limbeck_models: str = VERSION,
        **named: Any,
    ) -> None:
        super().__init__(**named)
        self.mixer = in_each_layer(mixer, self.encoder_layers)
        self.decoder_mixer = in_each_layer(decoder_mixer, self.decoder_layers)
        self.mixer_kernels = kernels_of(mixer_kernels, self.encoder_layers)
        self.decoder_kernels = kernels_of(decoder_kernels, self.decoder_layers)
        self.mixer_rank, self.mixer_features, self.mixer_window = mixer_rank, mixer_features, mixer_window
        self.limbeck_models = limbeck_models

    def of_stack(self, *, decoder: bool) -> Any:
        """Return the sizes of one stack by the names that mixers read."""
        return SimpleNamespace(
            hidden_size=self.d_model,
            num_attention_heads=self.decoder_attention_heads if decoder else self.encoder_attention_heads,
            max_position_embeddings=self.max_position_embeddings,
            attention_probs_dropout_prob=self.attention_dropout,
            mixer=self.decoder_mixer if decoder else self.mixer,
            mixer_kernels=self.decoder_kernels if decoder else self.mixer_kernels,
            mixer_rank=self.mixer_rank,
            mixer_features=self.mixer_features,
            mixer_window=self.mixer_window,
        )


class LimbeckDecoderConfig(GPT2Config):
    """Sizes of a language model; the settings of mixers are as in ``LimbeckEncoderConfig``."""

    model_type = "limbeck-decoder"

    def __init__(
        self,
        mixer: str | Sequence[str] = "softmax",
        mixer_kernels: int | Sequence[int] | None = None,
        mixer_rank: int | None = None,
        mixer_features: int | None = None,
        mixer_window: int | None = None,
        limbeck_models: str = VERSION,
        **named: Any,
    ) -> None:
        super().__init__(**named)
        self.mixer = in_each_layer(mixer, self.n_layer)
        self.mixer_kernels = kernels_of(mixer_kernels, self.n_layer)
        self.mixer_rank, self.mixer_features, self.mixer_window = mixer_rank, mixer_features, mixer_window
        self.limbeck_models = limbeck_models

    def of_mixers(self) -> Any:
        """Return the sizes by the names that mixers read."""
        return SimpleNamespace(
            hidden_size=self.n_embd,
            num_attention_heads=self.n_head,
            max_position_embeddings=self.n_positions,
            attention_probs_dropout_prob=self.attn_pdrop,
            mixer=self.mixer,
            mixer_kernels=self.mixer_kernels,
            mixer_rank=self.mixer_rank,
            mixer_features=self.mixer_features,
            mixer_window=self.mixer_window,
        )


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
