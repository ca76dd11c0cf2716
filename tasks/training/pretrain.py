"""Pretrain a small masked language model from scratch: the base of the demo's teacher, or of a language of your own.

Method: Devlin et al. 2018, BERT, arXiv:1810.04805.
Shape letters: B batch, T tokens, P predicted places, D width, V vocabulary.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F

from tasks.architectures.known_architectures import ARCHITECTURES
from tasks.engine.job import Job
from tasks.methods.losses.means import Loss, mean_of
from tasks.ports.rows.document_files import document_batches
from tasks.recipe.slices import PretrainingOfText
from tasks.recipe.training import Pretraining
from tasks.training.data.corpora import sequences
from tasks.training.data.encoded import Batch, Encoded, collate, flat
from tasks.training.data.epochs import planned
from tasks.training.loop import TrainingSpec, train
from tasks.training.models.attention import own_attention
from tasks.training.models.students import save_model, set_dropout
from tasks.training.precision import device, make_deterministic

SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


def pretrain(job: Job) -> dict[str, object]:
    """Learn a vocabulary from ``documents``, train a BERT of the given shape on them, and save it with its masked-LM
    head."""
    knobs, place = job.read(PretrainingOfText), device()
    make_deterministic(knobs.seed)
    tokenizer = make_tokenizer(job.inputs["documents"], knobs.vocabulary, job.output)
    pieces = list(sequences(job.inputs["documents"], tokenizer, knobs.max_length))
    offsets = np.concatenate([[0], np.cumsum([len(piece) for piece in pieces])]).astype(np.int64)
    encoded = Encoded(flat(pieces), np.zeros(offsets[-1], dtype=np.int8), offsets)
    model = new_model(len(tokenizer), knobs, place)
    set_dropout(model, knobs.dropout)
    spec = TrainingSpec(
        modules=model,
        # Masked tokens may be replaced by any token of the vocabulary, so all embedding rows are in use.
        epoch=lambda number: replace(planned(number, encoded, knobs), tokens_S=None),
        loss=lambda indices: masked_loss(
            model, collate(encoded, indices.rows_B, tokenizer.pad_token_id, place), tokenizer, knobs.mask_share
        ),
    )
    facts = train(job, knobs, spec, place)
    save_model(model, tokenizer, job.output)
    return facts | {"vocabulary": len(tokenizer), "tokens": int(offsets[-1])}


def new_model(vocabulary: int, knobs: Pretraining, place: torch.device) -> Any:
    """Return a randomly initialised BERT with a masked-LM head."""
    from transformers import BertConfig, BertForMaskedLM

    # BERT's 0.02 is for a width of 768; a narrow model with weights that small learns nothing for hundreds of steps.
    spread = 0.02 * (768 / knobs.hidden) ** 0.5
    config = BertConfig(  # type: ignore[call-arg]
        **{name: getattr(knobs, knob) for knob, name in ARCHITECTURES["bert"].shape.items()},
        vocab_size=vocabulary,
        max_position_embeddings=max(knobs.max_length, 64),
        pad_token_id=0,
        initializer_range=spread,
        attn_implementation="eager",
    )
    torch.manual_seed(knobs.seed)
    return own_attention(BertForMaskedLM(config).to(place))  # type: ignore[arg-type]


def make_tokenizer(documents: Path, vocabulary: int, folder: Path) -> Any:
    """Return a WordPiece tokenizer of the most frequent words of the corpus, and of all single letters, so that no word
    is unknown."""
    from transformers import BertTokenizer

    counts: Counter[str] = Counter()
    for texts in document_batches(documents, 1000):
        for text in texts:
            counts.update(text.lower().split())
    letters = sorted({letter for word in counts for letter in word})
    pieces = [*letters, *(f"##{letter}" for letter in letters)]
    # Words of equal counts are sorted alphabetically, so that the vocabulary does not depend on the reading order.
    words = [word for word, _ in sorted(counts.items(), key=lambda item: (-item[1], item[0])) if len(word) > 1]
    tokens = [*SPECIALS, *pieces, *words][: max(vocabulary, len(SPECIALS) + len(pieces))]
    return BertTokenizer(vocab={token: index for index, token in enumerate(tokens)}, do_lower_case=True)


def masked_loss(model: Any, batch: Batch, tokenizer: Any, share: float) -> Loss:
    """Return the loss of predicting the selected tokens, of which 80 % are masked, 10 % replaced by a random token, and
    10 % left unchanged."""
    host_BT, _ = batch.on_host()
    drawn_BT = torch.rand(host_BT.shape) < share
    drawn_BT &= host_BT >= len(SPECIALS)
    if not drawn_BT.any():
        drawn_BT[0, 1] = True  # the mean loss over no targets would be NaN
    places = drawn_BT.nonzero(as_tuple=True)
    dice_P = torch.rand(len(places[0]))
    any_P = torch.randint(len(SPECIALS), model.config.vocab_size, (len(places[0]),))
    mask_P = torch.full_like(any_P, tokenizer.mask_token_id)
    shown_P = torch.where(dice_P < 0.8, mask_P, torch.where(dice_P < 0.9, any_P, host_BT[places]))
    # All draws are on the CPU, and what was drawn is sent at once: a GPU would be waited for.
    rows_P, tokens_P, new_P = (values.to(batch.ids_BT.device, non_blocking=True) for values in (*places, shown_P))
    targets_P, ids_BT = batch.ids_BT[rows_P, tokens_P], batch.ids_BT.clone()
    ids_BT[rows_P, tokens_P] = new_P
    states_BTD = model.bert(ids_BT, attention_mask=batch.mask_BT).last_hidden_state
    total = F.cross_entropy(model.cls(states_BTD[rows_P, tokens_P]).float(), targets_P, reduction="sum")
    return mean_of(total, len(targets_P))
