"""What each room asks of a task type: one interface a room, so that a stage's key counts only the part that it uses.

Each part of a task type is one file of its folder (``rows.py``, ``head.py``, ``answers.py``, ``view.py``, ``graph.py``)
and one entry of a dict beside this file (``READERS``, ``HEADS``, ``ANSWERS``, ``VIEWS``, ``GRAPHS``), under the type's
name in a recipe. Shape letters: N rows, B batch, C outputs of a row.
"""

from __future__ import annotations

from dataclasses import dataclass

# --- rows: reading and checking a user's table, for ports -------------------------------------------------------------


@dataclass(frozen=True)
class Reader:
    """Reads and checks the labels of a table (``rows.py``; pyarrow and numpy)."""


# --- head: encoding, targets and losses, for training -----------------------------------------------------------------


@dataclass(frozen=True)
class Head:
    """Turns rows into targets and outputs into losses (``head.py``; torch)."""


# --- answers: predictions and their quality, for scoring and the selection of checkpoints -----------------------------


@dataclass(frozen=True)
class Answers:
    """Turns outputs into predictions, and predictions into figures (``answers.py``; numpy)."""


# --- view: words and figures, for pages, cards and MLflow -------------------------------------------------------------


@dataclass(frozen=True)
class View:
    """Describes a model's predictions to people (``view.py``; no library)."""


# --- graph: exported graphs, for exports, predictions and speed -------------------------------------------------------


@dataclass(frozen=True)
class Graph:
    """Describes exported graphs and their parity (``graph.py``; numpy)."""
