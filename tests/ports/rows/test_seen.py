"""What a model learned from, as digests."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tasks.ports.rows.overlap import sentences_of
from tasks.ports.rows.seen import learned_digests, read_sentences, rows_seen, sentence_digests


def write(folder: Path, texts: list[str], pairs: list[str | None]) -> Path:
    folder.mkdir()
    pq.write_table(pa.table({"text": texts, "pair": pa.array(pairs, pa.string())}), folder / "train.parquet")
    return folder


def test_every_sentence_that_is_learned_from_is_there_once_and_says_nothing_of_itself(tmp_path: Path) -> None:
    rows = write(tmp_path / "rows", ["A film", "a  FILM", "other"], ["it was good", None, None])
    text = write(tmp_path / "text", ["other", "of the user's own"], [None, None])
    found = learned_digests([rows, text, tmp_path / "nowhere"])
    assert found.tolist() == sorted(found.tolist()) and len(found) == 4, (
        "case and white space are no other text, and a pair is two sentences"
    )
    asked = sentence_digests(sentences_of(["a film", "A Film!"], ["it was good", None]))
    assert set(asked[0]) <= set(found.tolist()) and asked[1][0] not in found.tolist()
    assert (
        rows_seen(write(tmp_path / "judging", ["A film", "never", "fresh"], [None, "OTHER", None]), "train", found) == 2
    )
    assert read_sentences(rows, "train")[0] == ("a film", "it was good")
