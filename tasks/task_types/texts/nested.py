"""Tables of passages with their questions inside, as SQuAD's files have them: one row for each question.

Format: Rajpurkar et al. 2018, arXiv:1806.03822; an object ``data`` lists articles, each with ``paragraphs`` of one
``context`` and questions ``qas``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tasks.errors import DataError
from tasks.task_types.texts.json_cells import decoded_cells, is_json
from tasks.task_types.texts.text_fields import is_list

if TYPE_CHECKING:
    import pyarrow as pa

PARAGRAPHS = "paragraphs"
FLAT_COLUMNS = ("id", "title", "context", "question", "answers")


def is_nested(schema: pa.Schema) -> bool:
    """Tell whether a table has passages with questions inside: lists of objects, and no texts of that name."""
    import pyarrow as pa

    kind = schema.field(PARAGRAPHS).type if PARAGRAPHS in schema.names else pa.null()
    return is_list(kind) and (pa.types.is_struct(kind.value_type) or is_json(kind.value_type))


def questions_of_paragraphs(table: pa.Table, file: str) -> pa.Table:
    """Return one row for each question, with its passage and the title of its article. Raises DataError for a passage
    without a context, or a list that is none."""
    import pyarrow as pa

    rows = list[dict[str, object]]()
    titles = decoded_cells(table.column("title")) if "title" in table.column_names else [None] * len(table)
    for number, (title, paragraphs) in enumerate(
        zip(titles, decoded_cells(table.column(PARAGRAPHS)), strict=True), start=1
    ):
        for paragraph in paragraphs or ():
            if not isinstance(paragraph, dict) or not {"context", "qas"} <= paragraph.keys():
                raise DataError(
                    f"{file}, article {number}: a paragraph has no context or no qas; give SQuAD's form, or a flat "
                    f"table with the columns question, context and answers"
                )
            for asked in paragraph["qas"] or ():
                answers = asked.get("answers")
                if answers is not None and not (isinstance(answers, list) and all(map(is_answer, answers))):
                    raise DataError(
                        f"{file}, article {number}: the answers {str(answers)[:60]!r} are no list of objects with a "
                        f"text and an answer_start; give SQuAD's form"
                    )
                texts = None if answers is None else [answer["text"] for answer in answers]
                starts = None if answers is None else [answer["answer_start"] for answer in answers]
                found = None if texts is None else {"text": texts, "answer_start": starts}
                own = {"title": title, "context": paragraph["context"], "answers": found}
                rows.append({"id": asked.get("id"), "question": asked.get("question"), **own})
    answers_type = pa.struct([("text", pa.list_(pa.string())), ("answer_start", pa.list_(pa.int64()))])
    columns = {name: [row[name] for row in rows] for name in FLAT_COLUMNS[:-1]}
    return pa.table({**columns, "answers": pa.array([row["answers"] for row in rows], answers_type)})


def is_answer(given: object) -> bool:
    """Tell whether an answer has a text and the place at which it begins."""
    return isinstance(given, dict) and isinstance(given.get("text"), str) and isinstance(given.get("answer_start"), int)
