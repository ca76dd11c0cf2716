"""Where the sentences of a text end, by a rule that is stored with every text that was divided by it.

The order of sentences (Lan et al. 2019, ALBERT, arXiv:1909.11942) is learned from pairs of whole sentences, and the
paper's code reads a corpus that has one sentence a line. A user's corpus has not.
"""

from __future__ import annotations

import re

RULE = (
    "a full stop, exclamation or question mark, with quotes and brackets that close after it, then white space, then a "
    "capital letter, with quotes and brackets that open before it"
)
"""The rule in words, as it is recorded."""
SENTENCE_END = re.compile(r"[.!?][\"'”’»)\]]*\s+(?=[\"'“‘«(\[]*(\w))")


def split_sentences(text: str) -> list[str]:
    """Return the sentences of a text in order, without the white space between them; abbreviations before a name end a
    sentence, too, since the rule knows no words."""
    ends = [found.end() for found in SENTENCE_END.finditer(text) if found[1].isupper()]
    parts = (text[start:end].strip() for start, end in zip([0, *ends], [*ends, len(text)], strict=True))
    return [part for part in parts if part]
