"""Sentences of a small language with their translations, and translators that have learned nothing, for tests."""

from __future__ import annotations

import io
import json
import random
from pathlib import Path
from typing import Any

from tasks.ports.rows.table_files import write_table

THINGS = {"film": "Film", "song": "Gesang", "meal": "Essen", "book": "Buch", "plot": "Faden"}
WAYS = {"good": "gut", "bad": "schlecht", "fine": "fein", "poor": "arm"}


def sentences(count: int, seed: int = 0) -> tuple[list[str], list[str]]:
    """Return different sources and their targets: the words of a language in another order. Each has a number of its
    own, so that no two sources share their words."""
    draw, sources, targets = random.Random(seed), list[str](), list[str]()
    for number in range(count):
        things, ways = (draw.choices(list(words), k=2) for words in (THINGS, WAYS))
        digits = " ".join(str(number))
        sources.append(f"{digits} : {THINGS[things[0]]} {WAYS[ways[0]]} , {THINGS[things[1]]} {WAYS[ways[1]]}")
        targets.append(f"{ways[0]} {things[0]} and {ways[1]} {things[1]}")
    return sources, targets


def write_sentences(folder: Path, count: int = 160, **more: Any) -> Path:
    """Write sources and targets as a table."""
    sources, targets = sentences(count)
    write_table(folder / "train.parquet", {"source": sources, "target": targets, **more})
    return folder / "train.parquet"


def piece_tokenizer(texts: list[str], pieces: int = 300) -> Any:
    """Return a byte-level tokenizer that has learned texts, and ends each of them."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    own = Tokenizer(models.BPE())
    own.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    own.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=pieces, special_tokens=["<pad>", "</s>"], initial_alphabet=alphabet)
    own.train_from_iterator(texts, trainer)
    own.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    return PreTrainedTokenizerFast(tokenizer_object=own, eos_token="</s>", pad_token="<pad>")


def config_of(model_type: str, pieces: int, layers: int) -> Any:
    """Return the config of a small translator."""
    from transformers import AutoConfig

    both = {"vocab_size": pieces, "pad_token_id": 0, "eos_token_id": 1, "decoder_start_token_id": 0, "dropout": 0.0}
    if model_type == "t5":
        shape = {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": layers, "num_decoder_layers": layers}
        return AutoConfig.for_model("t5", **both, **shape, num_heads=4, dropout_rate=0.0)
    stacks = {f"{stack}_{name}": value for stack in ("encoder", "decoder") for name, value in SIZES.items()}
    depths = {"encoder_layers": layers, "decoder_layers": layers}
    own = {"d_model": 32, "max_position_embeddings": 128, "forced_eos_token_id": None, "bos_token_id": None}
    own |= {"scale_embedding": True, "init_std": 0.1}  # small ones learn slowly
    return AutoConfig.for_model(model_type, **both, **stacks, **depths, **own)


SIZES = {"attention_heads": 4, "ffn_dim": 64}


def write_translator(folder: Path, model_type: str = "marian", *, layers: int = 3, pieces: int = 300) -> Path:
    """Write a random translator with its tokenizer."""
    import torch
    from transformers import AutoModelForSeq2SeqLM

    tokenizer = piece_tokenizer([*sentences(40)[0], *sentences(40)[1]], pieces)
    torch.manual_seed(0)
    config = config_of(model_type, len(tokenizer), layers)
    AutoModelForSeq2SeqLM.from_config(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def write_opus_translator(folder: Path, *, layers: int = 1) -> Path:
    """Write a random translator as those of OPUS are: pieces of two languages by SentencePiece, and common ids."""
    from sentencepiece import SentencePieceProcessor, SentencePieceTrainer
    from transformers import AutoConfig, AutoModelForSeq2SeqLM, MarianTokenizer

    folder.mkdir(parents=True)
    pieces = list[str]()
    for name, texts in zip(("source", "target"), sentences(300), strict=True):
        options = {"vocab_size": 70, "hard_vocab_limit": False, "bos_id": -1, "eos_id": 0, "unk_id": 1}
        model = io.BytesIO()
        SentencePieceTrainer.train(sentence_iterator=iter(texts), model_writer=model, minloglevel=2, **options)
        (folder / f"{name}.spm").write_bytes(model.getvalue())
        own = SentencePieceProcessor(model_proto=model.getvalue())
        pieces += [own.id_to_piece(number) for number in range(own.get_piece_size())]
    names = list(dict.fromkeys(["</s>", "<unk>", ">>en<<", *sorted({*pieces} - {"</s>", "<unk>"}), "<pad>"]))
    (folder / "vocab.json").write_text(json.dumps({piece: number for number, piece in enumerate(names)}))
    files = [str(folder / name) for name in ("source.spm", "target.spm", "vocab.json")]
    MarianTokenizer(*files, source_lang="de", target_lang="en").save_pretrained(folder)
    last = len(names) - 1
    ids = {"pad_token_id": last, "decoder_start_token_id": last, "eos_token_id": 0, "bad_words_ids": [[last]]}
    values = config_of("marian", len(names), layers).to_dict()
    AutoModelForSeq2SeqLM.from_config(AutoConfig.for_model(**{**values, **ids})).save_pretrained(folder)
    return folder
