"""Encoders with words that have learned nothing of the documents of tests."""

from __future__ import annotations

from pathlib import Path

from tests.task_types.next_words.tables import documents, write_documents

__all__ = ["documents", "write_documents", "write_encoder"]


def write_encoder(folder: Path, *, layers: int = 4) -> Path:
    """Write a random BERT with the words of the documents, digits and letters."""
    import torch
    from transformers import BertConfig, BertForMaskedLM, BertTokenizer

    words = sorted({word for text in documents(40) for word in text.split() if not word.isdigit()})
    signs = "abcdefghijklmnopqrstuvwxyz0123456789"
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *signs, *(f"##{sign}" for sign in signs), *words]
    vocabulary = {piece: number for number, piece in enumerate(dict.fromkeys(pieces))}
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=16,
        num_hidden_layers=layers,
        num_attention_heads=4,
        intermediate_size=32,
        max_position_embeddings=600,
    )
    BertForMaskedLM(config).save_pretrained(folder)
    BertTokenizer(vocab=vocabulary).save_pretrained(folder)
    return folder
