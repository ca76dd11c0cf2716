"""Rows of tagged words: a label is the tag of each word, as a list or a text with spaces; empty in an unlabelled row.

Tags are read in BIO, IOB1, BIOES or BILOU and stored in BIO, as numbers of tags with spaces between them: 0 is O, each
type has the number of its B- tag and, next to it, that of its I- tag. An I- tag that continues no entity of its type
begins one, as conlleval reads it (Tjong Kim Sang and De Meulder 2003, arXiv:cs/0306050); such tags are counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tasks.errors import DataError
from tasks.metrics.of_entities import entities
from tasks.task_types.common_rows import names_in_config
from tasks.task_types.interfaces import ColumnChoice, JudgingLabels, Reader, TableGuess, TableRows
from tasks.task_types.tokens.marked_texts import with_tagged_words
from tasks.task_types.tokens.sentence import BETWEEN_WORDS, EMPTY_WORD, as_words, number_of_words, tags_of
from tasks.task_types.types import TAGS, TOKENS

if TYPE_CHECKING:
    import pyarrow as pa

O_TAG = "O"
SCHEMES = {"B": "B", "I": "I", "O": "O", "L": "I", "E": "I", "U": "B", "S": "B"}
"""The letter of a tag in BIO, by its letter in BIO, IOB1, BILOU and BIOES."""
MOST_TYPES = 100
SURE_FIT = 1.0
"""How well a table with a list of words and a list of tags fits."""
COLUMNS_OF_WORDS = ("tokens", "words", "sentence", "text")
COLUMNS_OF_TAGS = ("ner_tags", "tags", "ner", "labels", "entities", "label")
LOOKED_AT = 1000
SHARE_AS_LONG = 0.95
"""Share of the rows that must have as many tags as words for a guess."""
"""Rows of a table whose tags are looked at for a guess."""


def tags_type() -> pa.DataType:
    """Return the Arrow type of tags."""
    import pyarrow as pa

    return pa.string()


# --- tags -------------------------------------------------------------------------------------------------------------


def split_tag(tag: Any) -> tuple[str, str] | None:
    """Return the letter of a tag in BIO and its type; None for anything else."""
    if not isinstance(tag, str):
        return None
    if tag == O_TAG:
        return O_TAG, ""
    letter, sign, kind = tag.partition("-")
    return (SCHEMES[letter], kind) if sign and kind and letter in SCHEMES and letter != O_TAG else None


def written_tags(label: Any) -> list[Any] | None:
    """Return the tags of a row as they are written; None for an unlabelled row."""
    if label is None or label == "":
        return None
    return label.split() if isinstance(label, str) else list(label) if isinstance(label, (list, tuple)) else [label]


def tag_names(kinds: Sequence[str]) -> list[str]:
    """Return the names of all tags, in the order of their numbers."""
    return [O_TAG, *(f"{letter}-{kind}" for kind in kinds for letter in "BI")]


def names_of_tags(rows: TableRows) -> list[str]:
    """Return the names of the tags that rows declare or contain, in BIO."""
    tags = rows.declared or sorted({str(tag) for label in rows.columns["label"] for tag in written_tags(label) or ()})
    found = [split_tag(tag) for tag in tags]
    wrong = [tag for tag, one in zip(tags, found, strict=True) if one is None]
    if wrong and len(wrong) == len(tags) and all(tag.lstrip("-").isdigit() for tag in wrong):
        raise DataError(
            f"{rows.file}: the tags in column {rows.names['label']!r} are numbers, and the file does not name them; "
            f"name them in task.labels, in order, as in [O, B-PER, I-PER]"
        )
    if wrong:
        raise DataError(not_a_tag(rows, first_row_with(rows, wrong[0]), wrong[0]))
    kinds = list(dict.fromkeys(one[1] for one in found if one and one[1]))
    if not 1 <= len(kinds) <= MOST_TYPES:
        raise DataError(
            f"{rows.file} has {len(kinds)} types of entities in column {rows.names['label']!r}; 1 to {MOST_TYPES} are "
            f"needed, in tags such as B-PER and I-PER"
        )
    return tag_names(kinds)


def first_row_with(rows: TableRows, tag: str) -> int:
    """Return the number of the first row, from 1 on, that has a tag; 0 where only the file's declaration has it."""
    return next(
        (row for row, label in enumerate(rows.columns["label"], 1) if tag in map(str, written_tags(label) or ())), 0
    )


def not_a_tag(rows: TableRows, row: int, tag: Any) -> str:
    """Return a sentence about a tag that cannot be read."""
    where = f", row {row}" if row else ""
    return (
        f"{rows.file}{where}: the tag {tag!r} in column {rows.names['label']!r} is neither O nor a letter and a type, "
        f"such as B-PER and I-PER (BIO, IOB1, BILOU or BIOES); write the words of an entity so, and {O_TAG} for others"
    )


def require_tag_names(rows: TableRows, names: Sequence[str]) -> list[str]:
    """Return the types of entities of tags that are given by name. Raises DataError for names that are no tags in
    BIO."""
    kinds = [kind for found in map(split_tag, names) if found is not None and (kind := found[1])]
    kinds = list(dict.fromkeys(kinds))
    if list(names) != tag_names(kinds):
        wanted = ", ".join(tag_names(kinds or ["PER"]))
        raise DataError(
            f"{rows.file}: the tags are named {', '.join(names)}; a model of entities has O first, and then B- and I- "
            f"of each type: set task.labels: [{wanted}]"
        )
    return kinds


# --- labels -----------------------------------------------------------------------------------------------------------


def stored_tags(rows: TableRows, names: Sequence[str] | None) -> list[str | None]:
    """Return labels as they are stored, None for an unlabelled row. Raises DataError for an illegal one."""
    return [label for label, _ in read_tagged_rows(rows, names)]


def read_tagged_rows(rows: TableRows, names: Sequence[str] | None) -> list[tuple[str | None, int]]:
    """Return labels as they are stored, each with the number of I- tags that begin an entity."""
    numbers = {kind: 2 * place + 1 for place, kind in enumerate(require_tag_names(rows, names or ()))}
    labels, declared = rows.columns["label"], list(rows.declared or names or ())
    return [
        read_row(rows, row, text, label, numbers, declared)
        for row, (text, label) in enumerate(zip(rows.columns["text"], labels, strict=True), start=1)
    ]


def read_row(
    rows: TableRows, row: int, text: Any, label: Any, numbers: Mapping[str, int], declared: Sequence[str]
) -> tuple[str | None, int]:
    """Return the label of one row as it is stored, and the number of its I- tags that begin an entity."""
    tags = written_tags(label)
    if tags is None or not isinstance(text, str) or not text.strip():
        return None, 0
    if len(tags) != number_of_words(text):
        raise DataError(
            f"{rows.file}, row {row}: {number_of_words(text)} words in column {rows.names['text']!r} have {len(tags)} "
            f"tags in column {rows.names['label']!r}; give each word one tag"
        )
    found, before, repaired = list[int](), "", 0
    for tag in tags:
        letter, kind = read_tag(rows, row, tag, declared)
        if kind and kind not in numbers:
            raise DataError(
                f"{rows.file}, row {row}: the type of the tag {tag!r} is not one of {', '.join(numbers)}; correct it, "
                f"or name its tags in task.labels"
            )
        begins = letter == "B" or kind != before
        repaired += letter == "I" and begins
        found.append(0 if not kind else numbers[kind] + (not begins))
        before = kind
    return " ".join(map(str, found)), repaired


def is_tag_number(tag: Any) -> bool:
    """Tell whether a tag is the number of a declared one."""
    return isinstance(tag, int) and not isinstance(tag, bool) or isinstance(tag, str) and tag.isdigit()


def read_tag(rows: TableRows, row: int, tag: Any, declared: Sequence[str]) -> tuple[str, str]:
    """Return the letter in BIO and the type of one tag, which may be the number of a declared one."""
    named = tag
    if is_tag_number(tag):
        if not 0 <= int(tag) < len(declared):
            raise DataError(
                f"{rows.file}, row {row}: the tag {tag} is none of 0 to {len(declared) - 1}, which mean "
                f"{', '.join(declared)}"
            )
        named = declared[int(tag)]
    found = split_tag(named)
    if found is None:
        raise DataError(not_a_tag(rows, row, tag))
    return found


def notes_on_tags(rows: TableRows, names: Sequence[str] | None) -> list[str]:
    """Return a sentence about tags that are stored otherwise than they are written."""
    begun = sum(count for _, count in read_tagged_rows(rows, names))
    letters = Counter(
        str(tag)[:1] for label in rows.columns["label"] for tag in written_tags(label) or () if isinstance(tag, str)
    )
    others = {"L": "BILOU", "U": "BILOU", "E": "BIOES", "S": "BIOES"}
    scheme = next((name for letter, name in others.items() if letters[letter]), None)
    told = [f"{rows.file}: tags in {scheme} are stored in BIO"] if scheme else []
    empty = sum(word == EMPTY_WORD for text in rows.columns["text"] if text for word in str(text).split(BETWEEN_WORDS))
    if empty:
        told.append(f"{rows.file}: {empty:,} words are empty; they are kept, and answered {O_TAG}")
    if begun:
        told.append(f"{rows.file}: {begun:,} I- tags that continue no entity of their type begin one, and become B-")
    return told


def require_entities(where: str, labels: Sequence[Any], names: Sequence[str] | None) -> None:
    """Refuse a split without any entity, because its scores would be meaningless."""
    if len(labels) and not any(entities(label) for label in labels):
        raise DataError(f"the {where} has no entity; provide more rows, or hold out fewer")


def tag_facts(labels: Sequence[Any], names: Sequence[str] | None) -> dict[str, object]:
    """Return the names of the tags, and the share of each among all words."""
    counts = Counter(tag for label in labels for tag in tags_of(label))
    return {
        "labels": names,
        "label_shares": [round(counts[number] / max(counts.total(), 1), 4) for number in range(len(names or ()))],
    }


def judging_tags(
    rows: TableRows, given: JudgingLabels, names: Sequence[str] | None
) -> tuple[list[str | None], list[int] | None]:
    """Return the labels of a judging set. Raises DataError for a mapping of classes, which tags do not have."""
    if given.classes:
        raise DataError(f"{given.place}: tags of words cannot be mapped or merged; leave classes out of its section")
    declared = tuple(given.meanings) or rows.declared
    number = next(
        (tag for label in rows.columns["label"] for tag in written_tags(label) or () if is_tag_number(tag)), None
    )
    if number is not None and not declared and not given.numbered:
        raise DataError(
            f"{given.place}: its tags are numbers ({number}), and their meaning is unknown; set labels: to the names "
            f"of its tags, in order, or numbered: true if they are those of the training rows"
        )
    return stored_tags(TableRows(rows.file, rows.names, rows.columns, declared), names), None


# --- models and tables without a recipe -------------------------------------------------------------------------------


def columns_with_tags(columns: Mapping[str, Sequence[Any]]) -> ColumnChoice | None:
    """Return a column of lists of words and one of lists as long, or texts of both; None if there are none."""
    columns = in_parts(columns)
    lists = {
        name: [value for value in values[:LOOKED_AT] if value is not None]
        for name, values in columns.items()
        if are_lists(values[:LOOKED_AT])
    }
    words = [name for name, values in lists.items() if are_words(values)]
    words.sort(key=lambda name: COLUMNS_OF_WORDS.index(name) if name in COLUMNS_OF_WORDS else len(COLUMNS_OF_WORDS))
    for text in words:
        rows = columns[text][:LOOKED_AT]
        others = [name for name in lists if name != text and may_be_tags(name, rows, columns[name][:LOOKED_AT])]
        named = [name for name in COLUMNS_OF_TAGS if name in others]
        if others:
            label = (named or others)[0]
            rest = tuple(name for name in others if name != label)
            return ColumnChoice(text, None, label, rest, bool(named), why_text="a column of lists of words")
    return None


def are_lists(values: Sequence[Any]) -> bool:
    """Tell whether all values that are there are lists, and there is one."""
    known = [value for value in values if value not in (None, "")]
    return bool(known) and all(isinstance(value, (list, tuple)) for value in known)


def in_parts(columns: Mapping[str, Sequence[Any]]) -> dict[str, Sequence[Any]]:
    """Return the first rows of columns; where one holds texts of tags, such as ``B-PER O``, texts are lists."""
    some = {name: values[:LOOKED_AT] for name, values in columns.items()}
    if not any(map(are_texts_of_tags, some.values())):
        return some
    return {
        name: [value.split() if isinstance(value, str) else value for value in values] for name, values in some.items()
    }


def are_texts_of_tags(values: Sequence[Any]) -> bool:
    """Tell whether a column holds texts of tags alone, with spaces between them."""
    known = [value for value in values if value not in (None, "")]
    if not known or not all(isinstance(value, str) for value in known):
        return False
    found = [[split_tag(part) for part in value.split()] for value in known]
    return all(tag is not None for row in found for tag in row) and any(len(row) > 1 for row in found)


def are_words(values: Sequence[Any]) -> bool:
    """Tell whether all lists are of texts that are not all tags, and seldom several words."""
    flat = [word for value in values for word in value]
    if not all(isinstance(word, str) for word in flat) or sum(" " in word for word in flat) > len(flat) / 2:
        return False
    return any(split_tag(word) is None for word in flat)


def are_as_long(words: Sequence[Any], tags: Sequence[Any]) -> bool:
    """Tell whether nearly each row has as many tags as words: one that has not is refused by its number."""
    both = [(one, other) for one, other in zip(words, tags, strict=True) if one is not None and other is not None]
    as_long = sum(isinstance(other, (list, tuple)) and len(one) == len(other) for one, other in both)
    return bool(both) and as_long >= SHARE_AS_LONG * len(both)


def may_be_tags(name: str, words: Sequence[Any], tags: Sequence[Any]) -> bool:
    """Tell whether each row has as many tags as words, and they are not the places of answers in a passage: by the name
    of their column, or by a number that is too large for a tag."""
    numbers = (tag for row in tags for tag in row or () if isinstance(tag, int))
    return are_as_long(words, tags) and not name.endswith("start") and max(numbers, default=0) <= 2 * MOST_TYPES


def guess_tags(columns: Mapping[str, Sequence[Any]], chosen: ColumnChoice) -> TableGuess | None:
    """Return how a table with a list of words and a list of tags would be used; None for any other table."""
    columns = in_parts(columns)
    rows = zip(columns[chosen.text], columns[chosen.label], strict=True)
    both = [(text, label) for text, label in rows if text is not None and label is not None][:LOOKED_AT]
    if not both or not all(isinstance(one, (list, tuple)) for pair in both for one in pair):
        return None
    if not are_as_long([text for text, _ in both], [label for _, label in both]):
        return None
    tags = {tag for _, label in both for tag in label}
    kinds = sorted({found[1] for tag in tags if (found := split_tag(tag)) is not None and found[1]})
    named = f"tags of the types {', '.join(kinds[:6])}" if kinds else f"{len(tags)} different tags"
    reason = f"{chosen.text} has lists of words, and {chosen.label} a tag for each of them: {named}"
    return TableGuess(SURE_FIT, reason, ("entity_f1", "entity_precision", "entity_recall"))


READER = Reader(
    columns=(TOKENS, TAGS),
    label_type=tags_type,
    class_names=names_of_tags,
    labels=stored_tags,
    require_labels=require_entities,
    label_facts=tag_facts,
    judging_labels=judging_tags,
    names_in_config=names_in_config,
    guess=guess_tags,
    rows_have_classes=False,
    notes=notes_on_tags,
    columns_of=columns_with_tags,
    unlabelled=as_words,
    derive=with_tagged_words,
)
