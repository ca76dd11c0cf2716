"""Rows of ranking: a query, texts, and the grade of each, 0 for one that does not answer the query.

A table has a row for each text, and rows of one query become one row; or a row for each query, with lists of texts
(``{passages[]}`` as pair) and of grades. Grades are whole numbers from 0 on, stored with spaces between them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tasks.architectures import ModelConfig
from tasks.errors import DataError
from tasks.task_types.common_rows import are_strings, known_values, mean_words
from tasks.task_types.interfaces import ColumnChoice, JudgingLabels, Reader, TableGuess, TableRows
from tasks.task_types.ranking.candidates import HIGHEST_GRADE, grades_in, texts_to_rank
from tasks.task_types.retrieval.rows import PASSAGE_WORDS, QUERY_WORDS
from tasks.task_types.texts.templates import columns_in
from tasks.task_types.texts.text_fields import GRADE_WORDS, name_has
from tasks.task_types.types import GRADE, QUERY, TEXT_TO_RANK

if TYPE_CHECKING:
    import pyarrow as pa

LONGEST_QUERY = 40
"""Characters of a query that a message quotes."""
RANKS_FIT = 0.97
"""How well a table fits that has several texts of each query, some relevant and some not."""
MEAN_TEXTS = 2
"""Mean number of texts of a query from which on a table may be one of ranking."""
TEXT_WORDS = (*PASSAGE_WORDS, "answer", "text", "title", "product", "doc", "content", "body")
"""Usual words in the names of columns of texts that are ranked."""
SHARE_OF_MIXED = 0.5
"""Share of the queries that must have texts of several grades."""


def grades_type() -> pa.DataType:
    """Return the Arrow type of grades."""
    import pyarrow as pa

    return pa.string()


def no_names_of_grades(rows: TableRows) -> None:
    """Return None: grades are no classes."""
    return None


def grades(rows: TableRows, names: Sequence[str] | None = None) -> list[str | None]:
    """Return the grades of each query's texts, None for a query without grades. Raises DataError for other grades, and
    for another number of them."""
    found: list[str | None] = []
    pairs: Sequence[Any] = rows.columns.get("pair", ())
    for query, pair, label in zip(rows.columns["text"], pairs, rows.columns["label"], strict=True):
        if not isinstance(pair, str) or not pair.strip():  # told with the texts of the row
            found.append(None)
            continue
        try:
            found.append(grades_of_query(label, len(texts_to_rank(pair))))
        except ValueError as error:
            text = str(query)
            short = text if len(text) <= LONGEST_QUERY else text[:LONGEST_QUERY].rstrip() + " …"
            raise DataError(f"{rows.file}, query {short!r}: {error} (column {rows.names['label']!r})") from None
    return found


def grades_of_query(label: Any, count: int) -> str | None:
    """Return the grades of a query's texts; None where no text has one. Raises ValueError for others."""
    cells = list(label) if isinstance(label, (list, tuple)) else [label]
    if all(cell is None or cell == "" or cell == -1 for cell in cells):
        return None
    if len(cells) != count:
        raise ValueError(f"there are {len(cells)} grades for {count} texts; write one for each text")
    return " ".join(str(grade_of(cell)) for cell in cells)


def grade_of(cell: Any) -> int:
    """Return one grade. Raises ValueError for anything else."""
    if cell is None or cell == "":
        raise ValueError("one of its texts has no grade, and others have; grade all of them, 0 for one that is wrong")
    value = int(cell) if isinstance(cell, str) and cell.strip().isdecimal() else cell
    if not isinstance(value, (int, float)) or value not in range(HIGHEST_GRADE + 1):
        raise ValueError(f"the grade {cell!r} is no whole number from 0 to {HIGHEST_GRADE}")
    return int(value)


def require_relevant(where: str, labels: Sequence[Any], names: Sequence[str] | None) -> None:
    """Raise DataError if no query of a split has a relevant text, or none has several texts."""
    if not len(labels):
        return
    if not any(any(grades_in(label)) for label in labels):
        raise DataError(f"no text of the {where} is relevant; grade those that answer their query above 0")
    if all(len(grades_in(label)) < 2 for label in labels):
        raise DataError(f"each query of the {where} has one text, and there is nothing to rank; add further texts")


def texts_a_query(labels: Sequence[Any], names: Sequence[str] | None) -> dict[str, object]:
    """Return no facts about grades."""
    return {}


def judging_grades(rows: TableRows, given: JudgingLabels, names: Sequence[str] | None) -> tuple[list[str | None], None]:
    """Return the grades of a judging set; there are no classes to merge."""
    return grades(rows), None


def no_grades_in_config(config: ModelConfig) -> None:
    """Return None: a model knows no grades."""
    return None


def columns_of_queries(columns: Mapping[str, Sequence[Any]]) -> ColumnChoice | None:
    """Return the columns of a table that has, by their names, several graded texts of each query; None for others."""
    # ids are texts of one word, and are named like what they stand for
    some = sorted((name for name in columns if are_strings(columns[name])), key=lambda name: name.endswith("id"))
    query = next((name for name in some if name_has(name, QUERY_WORDS)), None)
    if query is None:
        return None
    if (lists := lists_of_texts(columns, query)) is not None:
        return lists
    passages = [name for name in some if name != query and name_has(name, TEXT_WORDS)]
    # beside a title, the text itself
    passage = max(passages, default=None, key=lambda name: (not name.endswith("id"), mean_words(columns[name])))
    if passage is None:
        return None
    marks = [name for name in columns if name_has(name, GRADE_WORDS) and name not in (query, passage)]
    label = next((name for name in marks if are_ranked(columns, query, passage, name)), None)
    return None if label is None else ColumnChoice(query, passage, label, why_text="a query with several texts")


def lists_of_texts(columns: Mapping[str, Sequence[Any]], query: str) -> ColumnChoice | None:
    """Return the columns of a table that has a row for each query, with lists of texts and of as many grades; None for
    any other table."""
    lists = {name: known_values(values) for name, values in columns.items()}
    lists = {name: cells for name, cells in lists.items() if cells and all(isinstance(one, list) for one in cells)}
    texts = [name for name, cells in lists.items() if are_of_several_words(cells)]
    texts.sort(key=lambda name: -mean_words(["\n".join(cell) for cell in lists[name]]))  # beside addresses, the texts
    grades_of = [name for name, cells in lists.items() if all(is_grade(one) for cell in cells for one in cell)]
    for passages in texts:
        for label in grades_of:
            sizes = [[*map(len, lists[name])] for name in (passages, label)]
            mixed = sum(len(set(cell)) > 1 for cell in lists[label])
            if sizes[0] == sizes[1] and max(sizes[0]) > 1 and mixed >= SHARE_OF_MIXED * len(sizes[0]):
                return ColumnChoice(query, f"{{{passages}[]}}", label, why_text="a query with a list of texts")
    return None


def are_of_several_words(cells: Sequence[Sequence[Any]]) -> bool:
    """Tell whether lists are of texts, most of several words: words and their tags are another type's."""
    flat = [one for cell in cells for one in cell]
    return all(isinstance(one, str) for one in flat) and sum(" " in one for one in flat) > len(flat) / 2


def are_ranked(columns: Mapping[str, Sequence[Any]], query: str, passage: str, label: str) -> bool:
    """Tell whether queries have several different texts each, of which some are relevant and some are not."""
    queries, texts, labels = columns[query], columns[passage], columns[label]
    if not known_values(labels) or not all(is_grade(one) for one in known_values(labels)):
        return False
    of_query = Counter(query for query, _ in set(zip(queries, texts, strict=True)))
    grades_of = Counter(query for query, _ in set(zip(queries, labels, strict=True)))
    mixed = sum(count > 1 for count in grades_of.values())
    return of_query.total() >= MEAN_TEXTS * len(of_query) and mixed >= SHARE_OF_MIXED * len(of_query)


def guess_ranking(columns: Mapping[str, Sequence[Any]], chosen: ColumnChoice) -> TableGuess | None:
    """Return how a table of queries with several graded texts each would be used; None for any other table."""
    if chosen.task != "ranking" or chosen.pair is None or chosen.text not in columns:
        return None
    if not {*columns_in(chosen.pair)} <= {*columns}:
        return None
    rows, queries = len(columns[chosen.text]), len(set(columns[chosen.text]))
    if chosen.pair not in columns:  # a list of texts in each row
        rows = sum(len(cell or ()) for cell in columns[columns_in(chosen.pair)[0]])
    reason = f"{chosen.text} has {rows / queries:.1f} texts on average, which {chosen.label} grades"
    return TableGuess(RANKS_FIT, reason, ("ndcg_at_10", "mrr_at_10", "average_precision"))


def is_grade(label: Any) -> bool:
    """Tell whether a label is a grade."""
    try:
        return grade_of(label) >= 0
    except ValueError:
        return False


READER = Reader(
    columns=(QUERY, TEXT_TO_RANK, GRADE),
    label_type=grades_type,
    class_names=no_names_of_grades,
    labels=grades,
    require_labels=require_relevant,
    label_facts=texts_a_query,
    judging_labels=judging_grades,
    names_in_config=no_grades_in_config,
    guess=guess_ranking,
    rows_have_classes=False,
    columns_of=columns_of_queries,
)
