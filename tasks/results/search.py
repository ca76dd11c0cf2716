"""The results of a search for shapes: the latency table with its error, the shapes, and how they were judged."""

from __future__ import annotations

from tasks.results.row import Number, Stated


class PerLayer(Stated):
    """A figure that grows by the same amount with every layer."""

    fixed: Number
    layer: Number

    def of(self, layers: int) -> float:
        """Return the figure of a model of so many layers."""
        return float(self.fixed + layers * self.layer)


class LatencyCell(Stated):
    """One width and number of neurons in one format, with its figures by layers."""

    width: Number
    """Share of the teacher's width."""
    neurons: Number
    """Share of the teacher's neurons."""
    hidden: int
    heads: int
    feed_forward: int
    format: str
    engine: str = ""
    ms: PerLayer
    parameters: PerLayer
    flops: PerLayer
    bytes: PerLayer
    row_width: int = 0
    """Numbers in one row of the embedding of words; 0 in results of older versions."""
    row_bytes: Number
    """Bytes of one row of the embedding of words, by which a smaller vocabulary is smaller."""
    unsteady: str = ""
    """The reason why its latency is not known within 5 %; empty if it is."""


class LatencyCheck(Stated):
    """A shape that is no part of the table: predicted and measured."""

    layers: int
    hidden: int
    feed_forward: int
    format: str
    predicted_ms: Number
    measured_ms: Number
    unsteady: str = ""

    @property
    def error(self) -> float:
        """The distance of the prediction as a share of what was measured."""
        return abs(self.predicted_ms - self.measured_ms) / self.measured_ms


class LatencyTable(Stated):
    """The latency of all shapes of a space on one machine, and how far to trust it."""

    layers: int
    """Layers of the deepest shape."""
    vocabulary: int
    """Pieces of the whole vocabulary."""
    reference_ms: Number
    """The latency of the largest shape, in turn with which all others were timed."""
    cells: tuple[LatencyCell, ...]
    checks: tuple[LatencyCheck, ...] = ()
    error: Number | None = None
    """Mean error of the checked shapes, as a share; None if none was checked."""
    largest_error: Number | None = None
    rank_correlation: Number | None = None
    """Spearman's correlation of predictions and measurements."""

    @property
    def unsteady(self) -> int:
        """The number of cells that are not known within 5 %."""
        return sum(bool(cell.unsteady) for cell in self.cells)


class JudgedShape(Stated):
    """A shape that fits the budget, with its predicted figures and its scores on the selection rows by round."""

    name: str
    layers: int
    hidden: int
    heads: int
    feed_forward: int
    width: Number
    neurons: Number
    vocabulary: int
    """Pieces of its vocabulary."""
    pieces: str
    """How they are chosen: whole, used, or a number."""
    format: str
    ms: Number
    bytes: Number
    flops: Number
    parameters: Number
    joules: Number | None = None
    scores: tuple[Number | None, ...] = ()
    """One score a round; fewer where it was left out earlier. That in a supernet, which has all pieces, is less the
    expected loss of its vocabulary. None is less that of its format."""
    state: str = "not trained"
    """candidate, left out (of a later round), too much alike (another candidate), or not trained (``shapes``)."""


class ShapeByHand(Stated):
    """A candidate that the recipe has by hand beside the chosen shapes, by measured latency, bytes and score."""

    name: str
    dominates: tuple[str, ...] = ()
    """The chosen shapes that are no better in anything, and worse in something."""
    dominated_by: tuple[str, ...] = ()
    unsteady: bool = False
    """Whether a latency is not known within 5 %."""


class SearchResult(Stated):
    """The answer of a search."""

    scored_by: str = ""
    """The metric by which shapes are compared; of one of which less is better, scores are the negative. Empty in
    results of an older release."""
    budgets: tuple[str, ...]
    limits: dict[str, Number] = {}
    """The most that a graph may have of each figure; empty where checkpoints are served, of which the recipe's gate has
    criteria."""
    formats: tuple[str, ...] = ()
    """The formats of the space; empty in results of an older release."""
    points: int
    """Points of the space: shapes, vocabularies and formats."""
    fitting: int
    """Shapes that fit the budget in some format with some vocabulary."""
    shapes: tuple[JudgedShape, ...] = ()
    losses: dict[str, Number] | None = {}
    """By how much the teacher is worse on the selection rows with a vocabulary or in a format, by its name, where there
    is a choice; a share of errors. None in a plan that does not know them."""
    table: LatencyTable | None = None
    table_seconds: Number | None = None
    """The seconds that the measurements of the table take at most."""
    rounds: tuple[int, ...] = ()
    """Shapes that each round trained; the last one is the candidates."""
    supernet_tau: Number | None = None
    """Kendall's rank correlation of the scores in a supernet and of the same shapes trained alone, in ``checked``; None
    without a supernet, and where it is not defined."""
    supernet_ordered: Number | None = None
    """The share of pairs of these shapes that both scores order, the others being ties; None in results of an older
    release."""
    scored: int | None = None
    """Shapes that a supernet scored, those of its check and those that NSGA-II chose; None where it scored all that
    fit, without a supernet, and where its ranking is not followed."""
    checked: tuple[str, ...] = ()
    """The shapes that were trained alone to check a supernet."""
    trusted: bool = False
    """Whether the supernet's ranking was followed."""
    tau: Number | None = None
    """Kendall's rank correlation of the candidates' scores in the round before and after their whole training; None
    where there were fewer than three."""
    by_hand: tuple[ShapeByHand, ...] = ()
    """The recipe's own candidates that are served in a format of the space."""
    notes: tuple[str, ...] = ()
