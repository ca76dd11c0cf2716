"""Task types as plain data: the kinds of question that a model can be trained to answer.

Everything that is particular to a task type stands in its folder beside this file, one small file for each room that
needs to know (``interfaces.py``); here is only the data that every room may read, without torch or pyarrow.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from difflib import get_close_matches

from tasks.errors import RecipeError


@dataclass(frozen=True)
class Column:
    """A column of a user's table, by its role."""

    role: str
    description: str
    required: bool = True
    is_words: bool = False  # whether a cell may be a list of words: they are joined by spaces
    is_chat: bool = False  # whether a cell is a list of messages: they are written as one text
    usual: str = ""  # its name in a task that does not name it; empty: its role
    is_gathered: bool = False  # whether rows with one text are one row, of which each second text is a line
    several: bool = False  # whether several columns of the table may stand for it, named with commas between them


@dataclass(frozen=True)
class Output:
    """A tensor that a model of the task type returns: its name in transformers' output and in exported graphs, and its
    axes."""

    name: str
    axes: tuple[str, ...]
    is_distribution: bool = True
    """Whether its last axis holds the logits of a distribution: a temperature softens it, and it has a certainty."""


@dataclass(frozen=True)
class TaskType:
    """One kind of question to a model."""

    name: str
    description: str  # one sentence for users
    hub_task: str  # its name at Hugging Face, for model cards and pipelines
    auto_class: str  # the class of transformers that loads its models
    columns: tuple[Column, ...]
    outputs: tuple[Output, ...]
    metrics: tuple[str, ...]  # the metrics that a recipe may name
    headline: str  # the metric that decides unless the recipe names another
    problem_type: str = ""  # its name in the config of a checkpoint; empty where transformers has none
    mixes_teachers: bool = True  # whether the answers of several teachers may be mixed
    pipeline: str = ""  # that of transformers in which MLflow keeps its models; empty: the one of ``hub_task``
    formulas: tuple[str, ...] = ("default", "paper")  # of a loss on a teacher's predictions, that a recipe may name
    has_thresholds: bool = False  # whether a finished model has thresholds that are tuned on the selection rows
    learns_labels: bool = True  # whether models learn from labels; if not, labels judge alone, and no teacher is tuned
    keeps_words: bool = False  # whether answers are about a vocabulary: the likeliest words are kept
    share_asked: float = 1.0  # of the tokens of a row, those about which such answers are
    continues_texts: bool = False  # whether its models read from left to right and continue a text, word by word
    writes: bool = False  # whether a model writes a text, token after token
    written_signals: tuple[str, ...] = ()  # the signals of trainings that are texts of the teacher
    usual_teacher: str = "google-bert/bert-base-uncased"  # the one that ``limbeck init`` writes
    usual_layers: int = 12  # the layers of the usual teacher

    @property
    def is_softened(self) -> bool:
        """Whether a temperature softens an answer."""
        return any(output.is_distribution for output in self.outputs)

    @property
    def has_certainty(self) -> bool:
        """Whether each stored answer of a teacher is a distribution, which has a certainty: the score of one option is
        none."""
        return self.is_softened and not self.reads_units_apart

    @property
    def has_units(self) -> bool:
        """Whether the units of a row, such as its words, have an answer each."""
        return self.reads_units_apart or any("tokens" in output.axes for output in self.outputs)

    @property
    def reads_units_apart(self) -> bool:
        """Whether each unit of a row, such as an option, is read as a pair of texts of its own."""
        return any({"options", "candidates"} & {*output.axes} for output in self.outputs)

    @property
    def answers_pieces(self) -> bool:
        """Whether the units of a row are pieces of a tokenizer, so that models with other pieces have other units."""
        return any(output.axes[-1] == "tokens" for output in self.outputs)

    @property
    def has_classes(self) -> bool:
        """Whether its answers are about classes that have names: an axis of its outputs counts them."""
        return any("classes" in output.axes for output in self.outputs)


CLASS_LOGITS = (Output("logits", ("batch", "classes")),)
VALUES = (Output("logits", ("batch", "one"), is_distribution=False),)
TAG_LOGITS = (Output("logits", ("batch", "tokens", "classes")),)
OPTION_SCORES = (Output("logits", ("batch", "options")),)
RELEVANCE_SCORES = (Output("logits", ("batch", "candidates"), is_distribution=False),)
LABEL_LOGITS = (Output("logits", ("batch", "classes"), is_distribution=False),)
SENTENCE_VECTORS = (Output("sentence_embedding", ("batch", "width"), is_distribution=False),)
SPAN_LOGITS = (Output("start_logits", ("batch", "tokens")), Output("end_logits", ("batch", "tokens")))
"""Outputs, each by a name of its own: a part of a task type that names them depends on nothing else of the type."""
WORD_LOGITS = (
    Output("logits", ("batch", "tokens", "vocabulary")),
    Output("word_ids", ("batch", "tokens"), is_distribution=False),
)
"""What a language model learns by: logits of a token, and which it is."""
WORD_NATS = (Output("nats", ("batch", "tokens"), is_distribution=False),)
"""What it is judged by."""
TARGET_LOGITS = (WORD_LOGITS[0],)
WRITTEN_TEXT = (Output("written", ("batch", "tokens"), is_distribution=False),)
"""What a model that reads and writes learns by, and what it is judged by."""

TEXT, PAIR = Column("text", "the text"), Column("pair", "the second text", required=False)
SECOND_TEXT, SCORE = Column("pair", "the second text"), Column("label", "how similar they are", required=False)
PASSAGE = Column("pair", "a passage that answers the query")
RELEVANCE = Column("label", "1, or 0 where it answers another query", required=False)
CLASS, NUMBER = Column("label", "the class, by name or number"), Column("label", "the number")
SEVERAL_LABELS = Column("label", "the labels: lists, texts with a separator, or columns of 0 and 1", several=True)

OPTIONS_COLUMN = Column("pair", "the options, as a list or as columns")
RIGHT_OPTION = Column("label", "the right option: its place from 0, its letter or its text", several=True)

QUERY, GRADE = Column("text", "the query"), Column("label", "how well the text answers it, 0 for not at all")
TEXT_TO_RANK = Column("pair", "a text, in a row of its own, or a list of texts", is_gathered=True)

TOKENS = Column("text", "the words, as a list or with spaces between them", is_words=True, usual="tokens")
TAGS = Column("label", "a tag for each word: O, or B-, I- and a type", usual="tags")

QUESTION = Column("text", "the question", usual="question")
CONTEXT = Column("pair", "the passage that the answer stands in", usual="context")
ANSWERS_IN_PASSAGE = Column(
    "label",
    "the answers: texts and their first characters in the passage; empty lists for none",
    usual="answers",
    several=True,
)

DOCUMENT = Column("text", "the document, a text of any length")
CHAT = Column("text", "the messages of a chat, each with its role and its content", is_chat=True, usual="messages")
SOURCE_TEXT = Column("text", "the source", usual="source")
TARGET = Column("label", "the text to write; a list, or columns, of several right ones", usual="target", several=True)
NO_LABEL = Column("label", "none: the text is what is learned", required=False)

OF_GROUPS = ("group_exact", "group_f1", "f1_group_exact", "group_parity")
"""Metrics of rows that are judged together: a task, or a judging set, names the column of their groups."""
ERROR_METRICS = frozenset({"mse", "word_perplexity", "token_perplexity", "bits_per_byte", "masked_perplexity"})
"""Metrics of which less is better, and which may be above 1; all others are shares, or correlations."""

CLASSIFICATION = TaskType(
    name="classification",
    description="One class of each text, or of each pair of texts.",
    hub_task="text-classification",
    auto_class="AutoModelForSequenceClassification",
    columns=(TEXT, PAIR, CLASS),
    outputs=CLASS_LOGITS,
    metrics=("accuracy", "f1", "macro_f1", "balanced_accuracy", "matthews", "macro_f1_accuracy", *OF_GROUPS),
    headline="accuracy",
    problem_type="single_label_classification",
)

REGRESSION = TaskType(
    name="regression",
    description="One number for each text, or for each pair of texts.",
    hub_task="text-classification",
    auto_class="AutoModelForSequenceClassification",
    columns=(TEXT, PAIR, NUMBER),
    outputs=VALUES,
    metrics=("pearson", "spearman", "pearson_spearman", "mse"),
    headline="pearson",
    problem_type="regression",
)

ENTITIES = TaskType(
    name="tokens",
    description="A tag for each word, such as named entities.",
    hub_task="token-classification",
    auto_class="AutoModelForTokenClassification",
    columns=(TOKENS, TAGS),
    outputs=TAG_LOGITS,
    metrics=("entity_f1", "entity_precision", "entity_recall"),
    headline="entity_f1",
)

MULTI_LABEL = TaskType(
    name="multi-label",
    description="Any number of labels of each text, or of each pair of texts.",
    hub_task="text-classification",
    auto_class="AutoModelForSequenceClassification",
    columns=(TEXT, PAIR, SEVERAL_LABELS),
    outputs=LABEL_LOGITS,
    metrics=("micro_f1", "label_macro_f1", "subset_accuracy"),
    headline="micro_f1",
    problem_type="multi_label_classification",
    has_thresholds=True,
)

MULTIPLE_CHOICE = TaskType(
    name="choices",
    description="The right one of several options for each text, such as an answer to a question.",
    hub_task="multiple-choice",
    auto_class="AutoModelForMultipleChoice",
    columns=(TEXT, OPTIONS_COLUMN, RIGHT_OPTION),
    outputs=OPTION_SCORES,
    metrics=("accuracy",),
    headline="accuracy",
    pipeline="feature-extraction",
)

EMBEDDING = TaskType(
    name="embedding",
    description="A vector of each text; pairs of texts with scores of their similarity judge the vectors.",
    hub_task="feature-extraction",
    auto_class="AutoModel",
    columns=(TEXT, SECOND_TEXT, SCORE),
    outputs=SENTENCE_VECTORS,
    metrics=("spearman", "pearson"),
    headline="spearman",
    learns_labels=False,
    usual_teacher="sentence-transformers/all-MiniLM-L6-v2",
    usual_layers=6,
)

RETRIEVAL = replace(
    EMBEDDING,
    name="retrieval",
    description="A vector of each text, for search; queries and their passages judge the vectors, and teach them.",
    columns=(TEXT, PASSAGE, RELEVANCE),
    learns_labels=True,
    metrics=("ndcg_at_10", "mrr_at_10", "recall_at_1", "recall_at_10", "recall_at_100"),
    headline="ndcg_at_10",
)

RERANKING = TaskType(
    name="ranking",
    description="A score of each text for a query, such as of the passages that a search has found.",
    hub_task="text-classification",
    auto_class="AutoModelForSequenceClassification",
    columns=(QUERY, TEXT_TO_RANK, GRADE),
    outputs=RELEVANCE_SCORES,
    metrics=("ndcg_at_10", "mrr_at_10", "average_precision"),
    headline="ndcg_at_10",
    formulas=("default", "margins", "scores", "lists"),
)

SPANS = TaskType(
    name="spans",
    description="The answer to a question: a part of a passage, or none.",
    hub_task="question-answering",
    auto_class="AutoModelForQuestionAnswering",
    columns=(QUESTION, CONTEXT, ANSWERS_IN_PASSAGE),
    outputs=SPAN_LOGITS,
    metrics=("squad_f1", "squad_exact"),
    headline="squad_f1",
    mixes_teachers=False,
    pipeline="feature-extraction",
    has_thresholds=True,
)

LANGUAGE_MODEL = TaskType(
    name="next-words",
    description="The next word of a document: language models that read from left to right.",
    hub_task="text-generation",
    auto_class="AutoModelForCausalLM",
    columns=(DOCUMENT, NO_LABEL),
    outputs=WORD_NATS,
    metrics=("word_perplexity", "token_perplexity", "bits_per_byte"),
    headline="word_perplexity",
    mixes_teachers=False,
    formulas=("default", "reverse", "jensen-shannon"),
    keeps_words=True,
    continues_texts=True,
    usual_teacher="HuggingFaceTB/SmolLM2-135M",
    usual_layers=30,
)

CHATS = replace(
    LANGUAGE_MODEL,
    name="chats",
    description="The assistant's messages in chats, word by word: language models that answer.",
    columns=(CHAT, NO_LABEL),
    written_signals=("sequence",),
    usual_teacher="HuggingFaceTB/SmolLM2-135M-Instruct",
)

HIDDEN_WORDS = TaskType(
    name="masked-words",
    description="Hidden words of a document: encoders that are shown the text on both sides of them.",
    hub_task="fill-mask",
    auto_class="AutoModelForMaskedLM",
    columns=(DOCUMENT, NO_LABEL),
    outputs=WORD_NATS,
    metrics=("masked_perplexity",),
    headline="masked_perplexity",
    mixes_teachers=False,
    formulas=("default", "reverse", "jensen-shannon"),
    keeps_words=True,
    share_asked=0.15,
)

SEQ2SEQ = TaskType(
    name="seq2seq",
    description="A text for each source: translations, summaries.",
    hub_task="text2text-generation",
    auto_class="AutoModelForSeq2SeqLM",
    pipeline="feature-extraction",  # transformers has none for these models any more
    columns=(SOURCE_TEXT, TARGET),
    outputs=WRITTEN_TEXT,
    metrics=("bleu", "chrf", "rouge_1", "rouge_2", "rouge_l", "rouge_lsum"),
    headline="bleu",
    mixes_teachers=False,
    formulas=("default", "reverse", "jensen-shannon"),
    keeps_words=True,
    writes=True,
    written_signals=("sequence", "interpolated"),
    usual_teacher="Helsinki-NLP/opus-mt-de-en",
    usual_layers=6,
)

METRICS_OF_SCORES_OF: dict[str, tuple[str, ...]] = {CLASSIFICATION.name: ("auroc",)}
"""Metrics of the score of a row, by task type: for ``scoring.metrics`` of a recipe alone. Each needs two classes."""

TASK_TYPES: dict[str, TaskType] = {
    "classification": CLASSIFICATION,
    "regression": REGRESSION,
    "choices": MULTIPLE_CHOICE,
    "tokens": ENTITIES,
    "multi-label": MULTI_LABEL,
    "spans": SPANS,
    "embedding": EMBEDDING,
    "retrieval": RETRIEVAL,
    "ranking": RERANKING,
    "next-words": LANGUAGE_MODEL,
    "chats": CHATS,
    "masked-words": HIDDEN_WORDS,
    "seq2seq": SEQ2SEQ,
}


def task_type(name: str) -> TaskType:
    """Return a task type by its name in a recipe. Raises RecipeError for an unknown one."""
    if name not in TASK_TYPES:
        near = get_close_matches(name, TASK_TYPES, 1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise RecipeError(f"unknown task type {name!r}; {hint}known are {', '.join(TASK_TYPES)}")
    return TASK_TYPES[name]
