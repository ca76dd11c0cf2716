"""Real but tiny: a model and rows that are made in milliseconds."""

from __future__ import annotations

import shutil
from pathlib import Path

WORDS = "the a film song meal was is very not good bad fine poor truly but although and it book plot end".split()


def write_tiny_bert(folder: Path, *, layers: int = 4) -> Path:
    """Write a random BERT with a masked-LM head."""
    import torch
    from transformers import BertConfig, BertForMaskedLM, BertTokenizer

    letters = "abcdefghijklmnopqrstuvwxyz"
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *(f"##{letter}" for letter in letters), *WORDS]
    tokens = list(dict.fromkeys(tokens))
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(tokens),
        hidden_size=16,
        num_hidden_layers=layers,
        num_attention_heads=4,
        intermediate_size=32,
        max_position_embeddings=64,
    )
    BertForMaskedLM(config).save_pretrained(folder)
    BertTokenizer(vocab={token: index for index, token in enumerate(tokens)}).save_pretrained(folder)
    return folder


def write_sharded(model: Path, folder: Path) -> Path:
    """Write the same model with its weights divided over several files, as transformers saves a large one."""
    from transformers import AutoModelForMaskedLM

    shutil.copytree(model, folder, ignore=shutil.ignore_patterns("model.safetensors"))
    AutoModelForMaskedLM.from_pretrained(model).save_pretrained(folder, max_shard_size="8KB")
    assert not (folder / "model.safetensors").exists() and len(list(folder.glob("*.safetensors"))) > 2
    return folder


def write_tiny_rows(folder: Path, count: int = 240) -> Path:
    """Write a CSV of distinct sentences that are good or bad."""
    lines = ["text,label"]
    for number in range(count):
        word = ("good", "fine")[number // 2 % 2] if number % 2 else ("bad", "poor")[number // 2 % 2]
        filler = (
            " ".join(WORDS[(number * step + step) % len(WORDS)] for step in (1, 3, 5))
            .replace("good", "it")
            .replace("bad", "it")
        )
        lines.append(f"the {filler} {number} was {word},{'positive' if number % 2 else 'negative'}")
    (folder / "train.csv").write_text("\n".join(lines) + "\n")
    return folder / "train.csv"
