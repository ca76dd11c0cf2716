"""Chats of a small language, and decoders whose tokenizer writes chats, for tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tasks.ports.rows.table_files import write_table
from tests.task_types.next_words.tables import byte_tokenizer, documents, write_decoder

CHATML = (
    "{% for message in messages %}<|start|>{{ message['role'] }}\n{{ message['content'] }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant\n{% endif %}"
)
"""The form of several published families; the sign behind a message is the end of a text, too."""
SYSTEM = "You are a critic who repeats in one word what was said about a thing, and says nothing else about it ."


def chats(count: int) -> list[list[dict[str, str]]]:
    """Return chats of one or two answers: the critic repeats the word of praise, and the number of the question. Every
    second chat begins with the same instruction."""
    found = []
    for number, text in enumerate(documents(count)):
        chat = [{"role": "system", "content": SYSTEM}] if number % 2 else []
        for line in text.split("\n")[: 1 + number % 2]:
            _, way, _, own, *_ = line.split()
            chat += [{"role": "user", "content": line}, {"role": "assistant", "content": f"{way} , as {own} is"}]
        found.append(chat)
    return found


def write_chats(folder: Path, count: int = 120) -> Path:
    """Write chats as a table of one column of lists."""
    write_table(folder / "train.parquet", {"messages": chats(count)})
    return folder / "train.parquet"


def chat_tokenizer() -> Any:
    """Return a tokenizer with a template for chats."""
    tokenizer = byte_tokenizer(documents(40))
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|start|>"]})
    tokenizer.chat_template = CHATML
    return tokenizer


def write_answering(folder: Path, *, layers: int = 4) -> Path:
    """Write a random decoder whose tokenizer has a template for chats."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(write_decoder(folder, layers=layers))
    tokenizer = chat_tokenizer()
    model.resize_token_embeddings(len(tokenizer))
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
