"""Cases of the shared oracles that no test can read, because what they are about is not built.

``test_oracles.py`` keeps this list true.
"""

from __future__ import annotations

from collections.abc import Iterator

NOT_BUILT: dict[str, dict[str, str]] = {
    "albert": {
        "the best table of a rank: embeddings are fitted to the output of their layer": "factorised_table",
    },
    "efficient_attention": {
        "features by relu": "favor_relu",
        "Linformer with one head of keys that are also the values": """
            linformer_one_head_shared linformer_one_head_shared_shorter
        """,
    },
    "importance": {
        "examples that cancel within a batch, norms over layers, and DynaBERT's order": """
            raw_one_batch both_norms_one_batch raw_two_batches two_batches_cleared
            dynabert_one_batch dynabert_two_batches
        """,
        "DynaBERT's sizes and layers": "sizes kept_layers",
    },
    "int8_grids": {
        "torchao's grids": "torchao_weight_8bit torchao_weight_4bit torchao_activation",
    },
    "lite_transformer": {
        "decoders with convolutions": "lsra_decoder_layer_light lsra_decoder_layer_dynamic",
    },
    "mobilebert": {
        "a slip of the reference: moments of all of the teacher's layers at once": """
            as_written_step5 as_written_step15 as_written_step30
        """,
    },
    "movement_regulariser": {
        "the other pressure of soft movement pruning": "l0",
    },
    "pruning": {
        "thresholds with a floor of half a percent, and a mistake of the reference": """
            threshold_0.5_plain threshold_0.7_sigmoid threshold_50.0_plain threshold_0.9999_sigmoid trap
        """,
    },
    "q8bert": {
        "ranges that are given, or moving averages (no graph has them), and rounded outputs of maps": """
            fixed_range_1.0 linear_ema_decay0.9 linear_ema_decay0.9999
            linear_ema_start_step2 linear_ema_no_output_requantization linear_dynamic
        """,
    },
    "synthesizer": {
        "a mistake of the reference: all queries share one row": "factorized factorized_causal",
        "sums of logits without a learned share": """
            random_plus random_plus_causal dense_plus dense_plus_causal
        """,
    },
}
"""Names of cases, by method and by what is missing."""


def not_built() -> Iterator[tuple[str, str]]:
    """Yield every named case as (method, name)."""
    for method, reasons in NOT_BUILT.items():
        for names in reasons.values():
            yield from ((method, name) for name in names.split())
