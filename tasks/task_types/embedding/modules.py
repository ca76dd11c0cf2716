"""What a model of sentence-transformers does with a text besides its encoder, its pooling and unit length."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tasks.errors import ModelError

MODULES_FILE, ENCODER_FILE = "modules.json", "config_sentence_transformers.json"
POOLING_FILE = "1_Pooling/config.json"
"""Where sentence-transformers states how token states become a vector."""
DISTILLED_MODULES = ("Transformer", "Pooling", "Normalize")


def further_steps(folder: Path) -> dict[str, str]:
    """Return the steps by which the vectors of a model differ from the pooled states of its encoder, in words, by the
    file that names them; empty for other models. Raises ModelError if one of the files cannot be read."""
    listed, said = content(folder / MODULES_FILE, []), content(folder / ENCODER_FILE, {})
    kinds = [str(one.get("type", "")).rpartition(".")[2] for one in listed if isinstance(one, dict)]
    others = [kind for kind in kinds if kind not in DISTILLED_MODULES]
    prompt = said.get("default_prompt_name")
    found = {MODULES_FILE: f"a module {' and a module '.join(others)} after its encoder"} if others else {}
    return found | ({ENCODER_FILE: f"the prompt {prompt!r} before each text"} if prompt else {})


def content(path: Path, otherwise: Any) -> Any:
    """Return the content of a file; ``otherwise`` if there is none, or if it holds something else than that is."""
    try:
        found = json.loads(path.read_bytes()) if path.is_file() else otherwise
    except (ValueError, RecursionError, OSError) as error:
        raise ModelError(f"{path} cannot be read ({error}); save the model again") from error
    return found if isinstance(found, type(otherwise)) else otherwise
