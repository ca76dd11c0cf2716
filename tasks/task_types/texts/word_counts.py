"""Words of a text, for estimates of its tokens."""

from __future__ import annotations

import re

BETWEEN_NO_SPACES = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
)
"""Letters of languages that are written without spaces: Thai, Lao, Burmese, Khmer, Japanese and Chinese."""


def words_in(text: str) -> int:
    """Return the number of words between spaces; of languages that have none, each letter is one, as it is for most of
    their tokenizers."""
    return len((text if text.isascii() else BETWEEN_NO_SPACES.sub(r" \g<0> ", text)).split())
