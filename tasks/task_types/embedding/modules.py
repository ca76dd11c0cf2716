"""The files in which a model of sentence-transformers says how a text becomes its vector: modules, pooling, prompts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tasks.errors import ModelError

MODULES_FILE, ENCODER_FILE = "modules.json", "config_sentence_transformers.json"
POOLING_FILE, READING_FILE = "1_Pooling/config.json", "sentence_bert_config.json"
"""Where sentence-transformers states how token states become a vector, and how a text is read."""
PROMPTS_IN_CONFIG = "limbeck_prompts"
"""Where a config states prompts, if it has any."""
DISTILLED_MODULES = ("Transformer", "Pooling", "Normalize")
COSINE = (None, "cosine", "cos_sim")


def further_steps(folder: Path) -> dict[str, str]:
    """Return the steps by which the vectors of a model differ from the pooled states of its encoder, in words, by the
    file that names them; empty for other models. Raises ModelError if one of the files cannot be read."""
    listed, said = content(folder / MODULES_FILE, []), content(folder / ENCODER_FILE, {})
    modules = [one for one in listed if isinstance(one, dict)]
    kinds = [str(one.get("type", "")).rpartition(".")[2] for one in modules]
    found, others = dict[str, str](), [kind for kind in kinds if kind not in DISTILLED_MODULES]
    places = [str(one.get("path", "")) for one, kind in zip(modules, kinds, strict=True) if kind == "Pooling"]
    if others:
        found[MODULES_FILE] = f"a module {' and a module '.join(others)} after its encoder"
    elif places and places != [POOLING_FILE.partition("/")[0]]:
        found[MODULES_FILE] = f"its pooling in {' and '.join(map(repr, places))}, which is not read"
    if modules and "Normalize" not in kinds and said.get("similarity_fn_name") not in COSINE:
        found[ENCODER_FILE] = f"vectors of any length, compared by {said['similarity_fn_name']!r}"
    if content(folder / READING_FILE, {}).get("do_lower_case"):
        found[READING_FILE] = "small letters for every text before its tokenizer"
    if prompts_in(folder).stated and content(folder / POOLING_FILE, {}).get("include_prompt") is False:
        found[POOLING_FILE] = "prompts that its pooling leaves out"
    return found


@dataclass(frozen=True)
class Prompts:
    """What a model reads before texts."""

    named: Mapping[str, str]
    """Prompts by their names."""
    default: str | None
    """The name of the prompt of every text that has no other one."""

    @property
    def of_every_text(self) -> str:
        """The prompt of every text that has no other one; empty for none."""
        return "" if self.default is None else self.named[self.default]

    @property
    def stated(self) -> dict[str, object]:
        """The prompts as sentence-transformers states them; empty where no prompt has a letter."""
        every: dict[str, object] = {"prompts": dict(self.named), "default_prompt_name": self.default}
        return every if any(self.named.values()) else {}


def prompts_in(folder: Path) -> Prompts:
    """Return the prompts that the file of a model states. Raises ModelError for a file that cannot be read, or whose
    prompts are no texts."""
    return prompts_of(content(folder / ENCODER_FILE, {}), str(folder / ENCODER_FILE))


def prompts_of(said: Mapping[str, object], file: str) -> Prompts:
    """Return the prompts that are stated as sentence-transformers does; ``file`` is for errors. Raises ModelError for
    prompts that are no texts."""
    named, default = said.get("prompts") or {}, said.get("default_prompt_name")
    if not isinstance(named, dict) or not all(isinstance(one, str) for one in named.values()):
        raise ModelError(f"{file} has prompts that are no texts by name; correct it")
    if default is not None and (not isinstance(default, str) or default not in named):
        known = ", ".join(map(repr, named)) or "no prompts"
        raise ModelError(f"{file} names {default!r} as the prompt of every text, and has {known}; correct it")
    return Prompts(named, default)


def files_that_count(folder: Path) -> list[str]:
    """Return the names of the files, besides the pooling's, by which vectors of a model are others than without."""
    return [*further_steps(folder), *([ENCODER_FILE] if prompts_in(folder).stated else [])]


def content(path: Path, otherwise: Any) -> Any:
    """Return the content of a file; ``otherwise`` if there is none, or if it holds something else than that is."""
    try:
        found = json.loads(path.read_bytes()) if path.is_file() else otherwise
    except (ValueError, RecursionError, OSError) as error:
        raise ModelError(f"{path} cannot be read ({error}); save the model again") from error
    return found if isinstance(found, type(otherwise)) else otherwise
