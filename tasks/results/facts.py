"""The facts that stages measure: one model for each kind of stage, read by ``Artifact.read``.

Facts cross from a stage to flows, gate and reports by the artifact, which stores them as JSON. Fields that a stage did
not state are unset and not written; names that are not listed are preserved.
"""

from __future__ import annotations

from tasks.results.row import Conditions, Estimate, Fp32Score, Means, Number, Stated

# --- rows -------------------------------------------------------------------------------------------------------------


class Purge(Stated):
    """The training rows that were removed because of held-out rows."""

    rows: int
    of: int
    """Rows of train before the purge."""
    way: str
    """``text``, ``group``, ``overlap`` (whole groups of overlapping rows are held back) or ``none``."""
    by: dict[str, int] = {}
    """Removed rows by split or judging set."""
    words_before: float
    words_left: float
    """Mean words of a row, before and after the purge."""
    short: dict[str, int] = {}
    """The requested rows of each split for which train has too few."""


class RowsFacts(Stated):
    """Facts of prepared rows; what a task type adds (names and shares of classes) is preserved."""

    rows: dict[str, int] = {}
    """Rows by split."""
    leaked: dict[str, int] = {}
    """Held-out rows that overlap with train, by split."""
    leaked_by_choice: dict[str, int] = {}
    """Rows that report and overlap with selection rows, by split; empty without selection rows."""
    leaked_in_part: dict[str, int] = {}
    """Held-out rows that overlap with train by the measure of the purge, by split, where groups divide rows."""
    groups: dict[str, int] = {}
    """Groups of the held-out rows that intervals draw, by split; only of splits with fewer groups than rows."""
    rows_sha256: dict[str, str] = {}
    """Digests of the splits that candidates are judged on."""
    longest_words: int = 0
    words_to_write: float = 0.0
    """Mean words of the texts to write of a training row; 0 where models write none."""
    labels: tuple[str, ...] | None = None
    purged: Purge | None = None
    unlabelled: dict[str, int] = {}
    """Rows without a label, by split."""
    read: tuple[str, ...] = ()
    """How each file was read."""
    faulty: tuple[str, ...] = ()
    """The rows that were left out because they cannot be used."""

    def after_purge(self, learned: SetPurge | None) -> RowsFacts:
        """Return the facts after the purge for judging sets; None is no purge."""
        before = self.purged
        if learned is None or before is None:
            return self
        purged = before.replaced(
            rows=before.rows + learned.rows, by={**before.by, **learned.by}, words_left=learned.words_left
        )
        return self.replaced(rows={**self.rows, "train": learned.left}, purged=purged)


class SetPurge(Stated):
    """The training rows that were removed because they overlap with judging sets."""

    rows: int
    by: dict[str, int]
    """Removed rows by judging set."""
    left: int
    """Training rows that remain."""
    words_left: float


class ShapeScores(Stated):
    """Scores of shapes of a supernet."""

    scores: tuple[Number | None, ...] = ()
    """One for each shape, in the order of the knobs; None without selection rows."""


class Leaks(Stated):
    """The overlap of held-out rows with one kind of training data: rows, the user's own text, or general text."""

    leaked: dict[str, int] = {}
    """Held-out rows that overlap with it, by split."""
    left_out: int = 0
    """Texts that are not learned from, because they overlap with held-out rows."""


class SetFacts(Stated):
    """Facts of a judging set: of its rows, and of their overlaps with training data."""

    rows: int = 0
    rows_sha256: str = ""
    unlabelled: int = 0
    faulty: tuple[str, ...] = ()
    """The rows that were left out because they cannot be used."""
    left_out: int = 0
    """Rows that were excluded because they overlap with training rows."""
    merged: tuple[int, ...] | None = None
    """By class the number of the class that it is merged into; None if no classes are merged."""
    merges: tuple[str, ...] = ()
    """A description of each group of merged classes."""
    leaked: dict[str, int] = {}
    """Rows that overlap with training data, by its kind."""
    learned: dict[str, int] = {}
    """Rows of training data that overlap with the set, by its kind."""


class HeldBackFacts(Stated):
    """Held-out rows of a run: their counts, the rows purged from train, and the remaining overlaps; nothing is set if
    they are unknown."""

    rows: dict[str, int] = {}
    purged: Purge | None = None
    leaked: dict[str, dict[str, int]] = {}
    """Rows that overlap, by kind of training data and split."""
    left_out: dict[str, int] = {}
    """Texts that are not learned from, because they overlap with held-out rows, by kind of training data."""
    leaked_by_choice: dict[str, int] = {}
    leaked_in_part: dict[str, int] = {}
    groups: dict[str, int] = {}
    words_to_write: float = 0.0
    """All four as in ``RowsFacts``."""
    judging: dict[str, SetFacts] = {}
    uncompared: dict[str, str] = {}
    """In a plan: training data, or a judging set, of which no overlap is counted before a run, with the reason."""

    @property
    def is_known(self) -> bool:
        """Whether the rows were counted."""
        return bool(self.rows)


# --- models -----------------------------------------------------------------------------------------------------------


class ModelFacts(Stated):
    """Facts of a trained model; a copied objective, or the floor of a teacher, adds further ones."""

    steps: int = 0
    train_seconds: Number | None = None
    selection_score: Number | None = None
    """Best score on the selection rows; None if it was not measured."""
    selection_count: int = 0
    selection_split: str = "selection"
    kept_layers: tuple[int, ...] = ()
    """The layers that a model with dropped layers has, counted from 0."""
    note: str | None = None
    bits: Number | None = None
    """Bits of a weight of its matrices, of a model that is trained for few."""
    pretraining: dict[str, float] = {}
    """Accuracies on held-back documents of the encoder that the model was made from, if a candidate pretrained it."""
    teacher_rows_read: int | None = None
    """Rows for which the training read the teacher's layers from the store; None where it did not learn from them."""
    teacher_rows_computed: int | None = None
    """Rows for which the training ran the teacher to get its layers."""

    @property
    def score(self) -> float:
        """The score on the selection rows; raises ValueError where none was measured."""
        if self.selection_score is None:
            raise ValueError("the model was not scored on selection rows")
        return float(self.selection_score)

    @property
    def figures(self) -> dict[str, float]:
        """The further figures by name: those by which a teacher is compared with guessing."""
        return {name: value for name, value in (self.model_extra or {}).items() if isinstance(value, (int, float))}


class AnswerFacts(Stated):
    """Facts of a teacher's predictions, and the size of the rows in tokens; None where they are of an older release, or
    in a plan."""

    rows: int = 0
    truncated: float = 0.0
    """Share of the rows that reach the limit of their length."""
    tokens: int | None = None
    pairs: int | None = None
    """Pairs of tokens of one row, summed over rows."""


class LayerFacts(Stated):
    """Facts of a teacher's stored layers, or the reason why they are not stored."""

    kept: bool = True
    reason: str = ""


class GraphFacts(Stated):
    """Facts of an exported graph, or the reason why there is none."""

    made: bool = True
    because: str = ""
    largest_difference: float = 0.0
    """Of outputs, to the checkpoint's."""
    note: str = ""
    """A note for users of the graph."""
    way: str = ""
    """The chosen mode of an int8 graph."""
    metric: str = ""
    loss: float = 0.0
    """By how much an int8 graph is worse than its fp32 graph."""
    fp32: Fp32Score | None = None


# --- figures ----------------------------------------------------------------------------------------------------------


class ScoreFacts(Stated):
    """A scorecard on a task's own rows, by split: figures of the first seed, and means over all seeds."""

    headline: str
    parameters: Number | None = None
    bytes: Number | None = None
    flops: Number | None = None
    flops_length: int | None = None
    metrics: dict[str, dict[str, Estimate]] = {}
    per_seed: dict[str, dict[str, tuple[Number | None, ...]]] = {}
    """By split and metric, the chosen seed first."""
    retained: dict[str, Estimate] = {}
    difference: dict[str, Estimate] | None = None
    agreement: dict[str, Number | None] = {}
    means: dict[str, Means] = {}
    rows: dict[str, int] = {}
    truncated: Number | None = None
    provenance: dict[str, str] | None = None


class Pace(Stated):
    """The latency of one of two models that were timed in turn, in ms."""

    p50_ms: Number
    p95_ms: Number
    low_ms: Number
    high_ms: Number


class FurtherScore(Stated):
    """The values of a further metric for one model on one split."""

    score: Estimate
    means: Estimate
    """The mean over all seeds."""
    per_seed: tuple[Number | None, ...] = ()


class MetricFacts(Stated):
    """Facts of a metric beside those of the task."""

    metric: str = ""
    lower_is_better: bool = False
    models: tuple[dict[str, FurtherScore], ...] = ()
    """The values of each model by split, in the order of the results."""


class SpeedFacts(Conditions):
    """The latencies of a model and of its teacher, timed in turn, and the model's memory."""

    model: Pace
    teacher: Pace
    speedup: Number
    speedup_low: Number
    speedup_high: Number
    unsteady: str | None = None
    calls: int
    memory_bytes: Number | None = None
    token_ms: Number | None = None
    """Of a language model: milliseconds of one further token behind a text of the timed length."""
    token_speedup: Number | None = None
    token_bytes: Number | None = None
    """Bytes of memory that each token of a text takes."""
    token_unsteady: str | None = None


class TextFacts(SpeedFacts):
    """The same of one text, and the length of texts."""

    fertility: Number
    """Pieces per word of the validation split."""
    fertility_elsewhere: Number | None = None
    """Pieces per word of the judging sets."""


class SplitContrast(Estimate):
    """The paired difference of two models on one split, with its p-value."""

    value: Number
    low: Number
    high: Number
    p: Number


class PackedFacts(Stated):
    """Facts of a packed model."""

    packed_bytes: Number
    nonzero_share: Number | None = None
    """Unknown of exports."""


class ContrastFacts(Stated):
    """A row-by-row comparison of a candidate with a baseline."""

    metric: str = ""
    lower_is_better: bool
    seeds: tuple[int, int]
    """Seeds of the candidate and of the baseline."""
    splits: dict[str, SplitContrast]


class SimilarityFacts(Stated):
    """The similarity of two models, layer by layer, the embeddings first."""

    cka: tuple[float, ...]
    cosines: tuple[float, ...]
