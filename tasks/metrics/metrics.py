"""The metrics by their names in recipes."""

from __future__ import annotations

from tasks.metrics.definition import Metric
from tasks.metrics.of_answers import SQUAD_EXACT, SQUAD_F1
from tasks.metrics.of_classes import ACCURACY, BALANCED_ACCURACY, F1, MACRO_F1, MACRO_F1_ACCURACY, MATTHEWS
from tasks.metrics.of_entities import ENTITY_F1, ENTITY_PRECISION, ENTITY_RECALL
from tasks.metrics.of_groups import F1_GROUP_EXACT, GROUP_EXACT, GROUP_F1, GROUP_PARITY
from tasks.metrics.of_label_sets import LABEL_MACRO_F1, MICRO_F1, SUBSET_ACCURACY
from tasks.metrics.of_lists import AVERAGE_PRECISION
from tasks.metrics.of_ranks import MRR_AT_10, NDCG_AT_10, RECALL_AT_1, RECALL_AT_10, RECALL_AT_100
from tasks.metrics.of_scores import AUROC
from tasks.metrics.of_texts import BLEU, CHRF, ROUGE_1, ROUGE_2, ROUGE_L, ROUGE_LSUM
from tasks.metrics.of_values import MSE, PEARSON, PEARSON_SPEARMAN, SPEARMAN
from tasks.metrics.of_words import BITS_PER_BYTE, MASKED_PERPLEXITY, TOKEN_PERPLEXITY, WORD_PERPLEXITY

METRICS: dict[str, Metric] = {
    "accuracy": ACCURACY,
    "f1": F1,
    "macro_f1": MACRO_F1,
    "balanced_accuracy": BALANCED_ACCURACY,
    "matthews": MATTHEWS,
    "macro_f1_accuracy": MACRO_F1_ACCURACY,
    "group_exact": GROUP_EXACT,
    "group_f1": GROUP_F1,
    "f1_group_exact": F1_GROUP_EXACT,
    "group_parity": GROUP_PARITY,
    "pearson": PEARSON,
    "spearman": SPEARMAN,
    "pearson_spearman": PEARSON_SPEARMAN,
    "mse": MSE,
    "entity_f1": ENTITY_F1,
    "entity_precision": ENTITY_PRECISION,
    "entity_recall": ENTITY_RECALL,
    "micro_f1": MICRO_F1,
    "label_macro_f1": LABEL_MACRO_F1,
    "subset_accuracy": SUBSET_ACCURACY,
    "squad_f1": SQUAD_F1,
    "squad_exact": SQUAD_EXACT,
    "ndcg_at_10": NDCG_AT_10,
    "mrr_at_10": MRR_AT_10,
    "average_precision": AVERAGE_PRECISION,
    "recall_at_1": RECALL_AT_1,
    "recall_at_10": RECALL_AT_10,
    "recall_at_100": RECALL_AT_100,
    "word_perplexity": WORD_PERPLEXITY,
    "token_perplexity": TOKEN_PERPLEXITY,
    "masked_perplexity": MASKED_PERPLEXITY,
    "bits_per_byte": BITS_PER_BYTE,
    "bleu": BLEU,
    "chrf": CHRF,
    "rouge_1": ROUGE_1,
    "rouge_2": ROUGE_2,
    "rouge_l": ROUGE_L,
    "rouge_lsum": ROUGE_LSUM,
}

METRICS_OF_SCORES: dict[str, Metric] = {"auroc": AUROC}
"""Metrics of a score of each row in place of its prediction (``Answers.scores``). They are reported beside the metrics
of a task, and choose no checkpoint."""


def is_error(name: str) -> bool:
    """Tell whether lower values of the named metric are better; an unknown name is False here, and an error when rows
    are scored."""
    found = METRICS.get(name)
    return found is not None and found.lower_is_better
