"""Files of tagged words, one word a line: its first column is the word, its last one the tag, and an empty line ends a
sentence.

Format: Tjong Kim Sang and De Meulder 2003, CoNLL-2003, arXiv:cs/0306050. Columns are divided by tabs or, in a line
without one, by spaces.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from tasks.errors import DataError

WORDS_COLUMN, TAGS_COLUMN = "tokens", "tags"
OF_A_DOCUMENT, OF_A_COMMENT = "-DOCSTART-", "#"
"""How lines begin that are no words: before a document, and remarks, whose last column is no tag."""
A_TAG = re.compile(r"O|[BIESLU]-\S+")
SHARE_OF_TAGGED = 0.9
"""Share of the lines that must end with a tag for a file of texts to be one of tagged words."""
LONGEST_LINE_NAMED = 40

TaggedSentence = tuple[list[str], list[str]]
"""The words of a sentence and their tags."""


def line_columns(line: str) -> list[str]:
    """Return the columns of a line."""
    return [cell.strip() for cell in line.split("\t")] if "\t" in line.strip() else line.split()


def tagged_sentences(lines: Iterable[str], file: str) -> Iterator[TaggedSentence]:
    """Yield the sentences of a file. Raises DataError for a word without a tag."""
    words, tags = list[str](), list[str]()
    for number, line in enumerate(lines, start=1):
        cells = line_columns(line.rstrip("\r\n"))
        if line.startswith(OF_A_COMMENT) and not (cells and A_TAG.fullmatch(cells[-1])):
            continue
        if not any(cells) or cells[0] == OF_A_DOCUMENT:
            if words:
                yield words, tags
            words, tags = [], []
            continue
        if len(cells) < 2 or not cells[-1]:
            shown = line.strip()[:LONGEST_LINE_NAMED]
            raise DataError(
                f"{file}, line {number}: {shown!r} is one column; write a word, a tab and its tag, as in Rome B-LOC"
            )
        words.append(cells[0])
        tags.append(cells[-1])
    if words:
        yield words, tags


def are_tagged_lines(lines: Iterable[str | None]) -> bool:
    """Tell whether nearly all of some lines with words are words with a tag."""
    cells = [found for line in lines if line and (found := line_columns(line))]
    tagged = sum(len(one) > 1 and bool(A_TAG.fullmatch(one[-1])) for one in cells)
    return bool(cells) and tagged >= SHARE_OF_TAGGED * len(cells)
