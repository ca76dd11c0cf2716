"""Whether a student's tokenizer divides texts as its teacher's did: answers to pieces are stored piece after piece, and
are looked up by the number of a piece.

Two tokenizers with one vocabulary may divide a text differently: one of them lower-cases it, puts a space before it, or
writes chats by another template. So a digest of each row's pieces is stored beside the answers. Shape letters: N rows,
U units of all rows.
"""

from __future__ import annotations

from hashlib import blake2b

import numpy as np

from tasks.errors import ModelError
from tasks.task_types.units import Parts, Units, WrittenPieces
from tasks.training.data.encoded import Encoded

PIECES = "pieces"
"""In a file of answers, the digest of each row's pieces; absent where units are no pieces of a tokenizer."""
DIGEST_BYTES = 8


def is_answered_in_texts(units: Units | Parts | WrittenPieces | None) -> bool:
    """Tell whether a teacher writes texts that students learn: from a source, or as an answer in a chat. None continues
    the documents that a language model learns from."""
    return isinstance(units, WrittenPieces) or (isinstance(units, Units) and units.are_chats)


def other_signals(*, writes: bool) -> str:
    """Return the signals by which a student with other pieces can learn: labels, or the texts of a teacher that writes
    some."""
    own = "labels (signal: labels)"
    return f"{own} or on its texts (signal: sequence)" if writes else f"{own}, or trim its vocabulary later"


def digests_of_pieces(encoded: Encoded) -> np.ndarray:
    """Return a digest of the pieces of each row that have an answer [N], in the order of their answers."""
    assert encoded.windows is not None
    ids_U, ends_N = answered_pieces(encoded), np.cumsum(encoded.windows.counts_N)
    rows = zip(ends_N - encoded.windows.counts_N, ends_N, strict=True)
    found = [blake2b(ids_U[start:end].tobytes(), digest_size=DIGEST_BYTES).digest() for start, end in rows]
    return np.frombuffer(b"".join(found), dtype="<u8").astype(np.uint64)


def answered_pieces(encoded: Encoded) -> np.ndarray:
    """Return the ids of the pieces that have an answer [U]; of a hidden one, the number that stands for it."""
    if encoded.written is not None:
        return encoded.written.ids_U.astype(np.int32)
    assert encoded.windows is not None and encoded.windows.unit_S is not None
    there_S = encoded.windows.unit_S >= 0
    ids_U = np.zeros(encoded.answers, dtype=np.int32)
    ids_U[encoded.windows.unit_S[there_S]] = encoded.ids_S[there_S]
    return ids_U


def require_same_pieces(stored_N: np.ndarray, encoded: Encoded, *, writes: bool) -> None:
    """Raise ModelError if rows are divided into other pieces than those that stored answers are about, from the digests
    of these, in the order of the rows."""
    others = int((stored_N != digests_of_pieces(encoded)).sum())
    if others:
        raise ModelError(
            f"the student's tokenizer has the vocabulary of its teacher's, but divides {others:,} of "
            f"{len(stored_N):,} rows into other pieces, so its teacher's answers to its pieces would be read at wrong "
            f"places; start the student from a model with the same tokenizer, let its teacher read what it reads "
            f"(task_distillation.answers: live), or train it on {other_signals(writes=writes)}"
        )
