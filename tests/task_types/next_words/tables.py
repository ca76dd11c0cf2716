"""Documents of a small language, and decoders that have learned nothing of it, for tests."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from tasks.ports.rows.table_files import write_table

THINGS, WAYS = "film song meal book plot".split(), "good bad fine poor".split()


def documents(count: int, seed: int = 0) -> list[str]:
    """Return documents of three to eight sentences: a thing is praised in the way in which it was named. Each sentence
    has a number of its own, so that no two documents share eight words."""
    draw, found = random.Random(seed), list[str]()
    for number in range(count):
        pairs = [(draw.choice(THINGS), draw.choice(WAYS)) for _ in range(draw.randint(3, 8))]
        lines = [f"the {way} {thing} {10 * number + line} was very {way} ." for line, (thing, way) in enumerate(pairs)]
        found.append("\n".join(lines))
    return found


def write_documents(folder: Path, count: int = 120) -> Path:
    """Write documents as a table of one column."""
    write_table(folder / "train.parquet", {"text": documents(count)})
    return folder / "train.parquet"


def write_questions_about_words(folder: Path, count: int = 24) -> Path:
    """Write questions with two or three options: in which way a thing was. The number keeps questions apart."""
    draw, rows = random.Random(1), list[tuple[str, list[str], int]]()
    for number in range(count):
        ways = draw.sample(WAYS, draw.randint(2, 3))
        right = draw.randrange(len(ways))
        rows.append(
            (f"the {ways[right]} {draw.choice(THINGS)} {number} was very", [f"{way} {number} ." for way in ways], right)
        )
    columns = zip(("question", "choices", "label"), zip(*rows, strict=True), strict=True)
    write_table(folder / "test.parquet", {name: list(values) for name, values in columns})
    return folder / "test.parquet"


def byte_tokenizer(texts: list[str]) -> Any:
    """Return a byte-level tokenizer of 320 pieces that has learned texts."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    own = Tokenizer(models.BPE())
    own.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    own.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=320, special_tokens=["<|end|>"], initial_alphabet=alphabet)
    own.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=own, eos_token="<|end|>", bos_token="<|end|>")


def write_decoder(folder: Path, model_type: str = "llama", *, layers: int = 4, **changes: Any) -> Path:
    """Write a random decoder with its tokenizer."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    tokenizer = byte_tokenizer(documents(40))
    end = tokenizer.eos_token_id
    common = {"vocab_size": len(tokenizer), "bos_token_id": end, "eos_token_id": end, "pad_token_id": end}
    shapes: dict[str, dict[str, Any]] = {
        "gpt2": {"n_embd": 32, "n_layer": layers, "n_head": 4, "n_positions": 128},
        "llama": {
            "hidden_size": 32,
            "num_hidden_layers": layers,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "intermediate_size": 64,
            "max_position_embeddings": 128,
        },
    }
    shapes["qwen3"] = {**shapes["llama"], "head_dim": 8}
    shapes["mistral"] = shapes["llama"]
    torch.manual_seed(0)
    config = AutoConfig.for_model(model_type, **common, **shapes[model_type], **changes)
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
