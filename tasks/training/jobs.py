"""The jobs of the training engine, by name."""

from __future__ import annotations

from tasks.training.answers import answer, mix
from tasks.training.augment import augment
from tasks.training.data.corpora import tokenize_corpus
from tasks.training.distill import distill_intermediate, distill_prediction
from tasks.training.dropping import drop_and_train, measure_contributions, measure_similarity
from tasks.training.finetune import finetune
from tasks.training.general import distill_general
from tasks.training.models.thresholds import write_thresholds
from tasks.training.objectives.signals import record_signals
from tasks.training.pretrain import pretrain
from tasks.training.pretraining.pretrain import pretrain_on_pairs, write_vocabulary
from tasks.training.pretraining.sentences import divide_documents
from tasks.training.shrinking.head_pruning import silence_least_important
from tasks.training.shrinking.neuron_pruning import prune_neurons
from tasks.training.shrinking.quantization import train_on_grid
from tasks.training.shrinking.rounds import prune_round
from tasks.training.shrinking.static_ranges import train_on_static_ranges
from tasks.training.shrinking.supernet import score_shapes, train_in_sandwich, write_shape
from tasks.training.shrinking.tickets import train_round
from tasks.training.shrinking.vocabulary import keep_used_pieces
from tasks.training.shrinking.weight_pruning import prune_while_training
from tasks.training.shrinking.width_pruning import cut_width
from tasks.training.writing.answer_texts import write_all_beams
from tasks.training.writing.generation_config import write_generation_config

JOBS = {
    "answer": answer,
    "answer-texts": write_all_beams,
    "augment": augment,
    "contributions": measure_contributions,
    "cut-supernet": write_shape,
    "drop": drop_and_train,
    "finetune": finetune,
    "generation-config": write_generation_config,
    "general": distill_general,
    "intermediate": distill_intermediate,
    "judge-shapes": score_shapes,
    "learn-vocabulary": write_vocabulary,
    "mix": mix,
    "prediction": distill_prediction,
    "neurons": prune_neurons,
    "pretrain": pretrain,
    "pretrain-encoder": pretrain_on_pairs,
    "prune-round": prune_round,
    "quantization": train_on_grid,
    "static-quantization": train_on_static_ranges,
    "sentences": divide_documents,
    "signals": record_signals,
    "similarity": measure_similarity,
    "supernet": train_in_sandwich,
    "thresholds": write_thresholds,
    "ticket": train_round,
    "tokenize": tokenize_corpus,
    "vocabulary": keep_used_pieces,
    "weights": prune_while_training,
    "width": cut_width,
    "heads": silence_least_important,
}
