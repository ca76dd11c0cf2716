"""What is refused of an architecture, each with a reason and a way out: signals that cannot be read, heads that are not
known, shapes that cannot be built."""

from __future__ import annotations

from typing import Any

from tasks.architectures.architecture import HIDDEN, SCORES, STATES, everywhere
from tasks.architectures.registry import ARCHITECTURES, architecture_of, model_type_of
from tasks.errors import ModelError

INSTEAD = {
    SCORES: "set matching.attention: 0 and copy hidden states",
    STATES: "use method: layers with matching.attention: 0, which copies hidden states",
    HIDDEN: "leave the section out and learn from its answers (soft targets) alone",
}
"""What to do where a signal cannot be read."""
MOST_PARAMETERS = 2e10
"""Far beyond any encoder, and short of what a machine could not even build."""


def about_parameters(layers: int, width: int, inner: int, words: int) -> int:
    """Return about how many parameters a model of this shape has; ``words`` are the numbers of its embeddings."""
    return layers * width * (4 * width + 2 * inner) + words


def at(where: str) -> str:
    """Return the beginning of a sentence about a place in a recipe."""
    return f"{where}: " if where else ""


def require_signal(config: Any, signal: str, where: str = "") -> None:
    """Raise ModelError where an architecture cannot show a signal, with the reason and what can be done."""
    architecture = architecture_of(config)
    if signal not in architecture.signals:
        raise ModelError(
            f"{at(where)}{signal} cannot be read from a {model_type_of(config)} model, because "
            f"{architecture.because}; {INSTEAD[signal]}, or use one of "
            f"{', '.join(sorted(name for name, other in ARCHITECTURES.items() if signal in other.signals))}"
        )


def require_words(config: Any, where: str = "") -> None:
    """Raise ModelError for the triple loss where the vocabulary head is not known."""
    architecture = architecture_of(config)
    if architecture.word_head is None:
        layers = "use method: layers with matching.attention: 0"
        raise ModelError(
            f"{at(where)}the triple loss needs a masked-LM head that it knows, and {model_type_of(config)} is not "
            f"among {', '.join(sorted(name for name, other in ARCHITECTURES.items() if other.word_head))}; "
            f"{'use method: relations' if STATES in architecture.signals else layers}"
        )


def require_alone(config: Any, where: str = "") -> None:
    """Raise ModelError for replacing layers one by one where they cannot stand alone."""
    if not architecture_of(config).stands_alone:
        raise ModelError(
            f"{at(where)}layers of a {model_type_of(config)} model cannot be replaced one by one; use "
            f"method: layers, or a teacher among "
            f"{', '.join(sorted(name for name, other in ARCHITECTURES.items() if other.stands_alone))}"
        )


def require_global(config: Any, where: str = "") -> None:
    """Raise ModelError for comparing where tokens attend to, where some layers attend to a neighbourhood only."""
    if architecture_of(config).reach is not everywhere:
        raise ModelError(
            f"{at(where)}tokens of a {model_type_of(config)} model may look at their neighbours only, so where they "
            "look cannot be compared as a whole; use method: relations or layers"
        )


def require_heads(config: Any, width: int, heads: int, where: str = "") -> None:
    """Raise ModelError for a number of heads that a width cannot be divided by."""
    if width % heads:
        raise ModelError(f"{at(where)}width {width} does not divide by {heads} heads; choose heads that divide it")
    if architecture_of(config).even_heads and width // heads % 2:
        raise ModelError(
            f"{at(where)}{heads} heads of {width // heads} numbers each: this family turns numbers in pairs; choose "
            f"heads of an even size"
        )
