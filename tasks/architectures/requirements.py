"""Checks of an architecture, each with a reason and an alternative: signals that cannot be read, unknown heads, shapes
that cannot be built."""

from __future__ import annotations

from typing import Any

from tasks.architectures.architecture import HIDDEN, SCORES, STATES, everywhere
from tasks.architectures.known_architectures import ARCHITECTURES, architecture_of, model_type_of, shape_of
from tasks.errors import ModelError

INSTEAD = {
    SCORES: "set matching.attention: 0 and copy hidden states",
    STATES: "use method: layers with matching.attention: 0, which copies hidden states",
    HIDDEN: "remove the section and distil its predictions (soft targets) only",
}
"""Alternatives to a signal that cannot be read, for error messages."""


def at(where: str) -> str:
    """Return the prefix of an error message that names a place in a recipe."""
    return f"{where}: " if where else ""


def require_signal(config: Any, signal: str, where: str = "") -> None:
    """Raise ModelError if a signal of an architecture cannot be read, with the reason and alternatives."""
    architecture = architecture_of(config)
    if signal not in architecture.signals:
        raise ModelError(
            f"{at(where)}{signal} cannot be read from a model of type {model_type_of(config)}, because "
            f"{architecture.because}; {INSTEAD[signal]}, or use one of "
            f"{', '.join(sorted(name for name, other in ARCHITECTURES.items() if signal in other.signals))}"
        )


def require_words(config: Any, where: str = "") -> None:
    """Raise ModelError for the triple loss if the vocabulary head is not known."""
    architecture = architecture_of(config)
    if architecture.word_head is None:
        layers = "use method: layers with matching.attention: 0"
        raise ModelError(
            f"{at(where)}the triple loss needs a known masked-LM head, and {model_type_of(config)} is not "
            f"among {', '.join(sorted(name for name, other in ARCHITECTURES.items() if other.word_head))}; "
            f"{'use method: relations' if STATES in architecture.signals else layers}"
        )


def require_alone(config: Any, where: str = "") -> None:
    """Raise ModelError for replacing layers one by one if an architecture's layers are not independent
    (``stands_alone``)."""
    if not architecture_of(config).stands_alone:
        raise ModelError(
            f"{at(where)}layers of a model of type {model_type_of(config)} cannot be replaced one by one; use "
            f"method: layers, or a teacher among "
            f"{', '.join(sorted(name for name, other in ARCHITECTURES.items() if other.stands_alone))}"
        )


def require_global(config: Any, where: str = "") -> None:
    """Raise ModelError for comparing attention distributions if some layers have local attention only."""
    if architecture_of(config).reach is not everywhere:
        raise ModelError(
            f"{at(where)}a model of type {model_type_of(config)} has local attention, so its attention distributions "
            "cannot be compared as a whole; use method: relations or layers"
        )


def require_heads(config: Any, width: int, heads: int, where: str = "") -> None:
    """Raise ModelError if the width is not divisible by the number of heads, or if the family needs heads of an even
    size."""
    if width % heads:
        raise ModelError(f"{at(where)}width {width} does not divide by {heads} heads; choose heads that divide it")
    if architecture_of(config).even_heads and width // heads % 2:
        raise ModelError(
            f"{at(where)}{heads} heads of size {width // heads}: the rotary embedding of this family needs an even "
            f"head size; choose another number of heads"
        )


def require_decoder(config: Any, wanted: int | None, where: str = "") -> None:
    """Raise ModelError for a decoder with more layers than its teacher's."""
    there = shape_of(config).get("decoder_layers")
    if wanted is not None and there is not None and wanted > there:
        raise ModelError(
            f"{at(where)}its decoder has {wanted} layers and its teacher's {there}; give it at most {there}"
        )


SERVED = ("albert", "bert", "distilbert", "electra", "roberta")
"""Families whose graphs round as the model in training does: all that they round are linear maps and looked-up
tables."""


def require_served(family: str, name: str = "") -> None:
    """Raise ModelError for a family whose graph would round otherwise than it does in training; ``name`` is the
    candidate's."""
    if family not in SERVED:
        where = f"candidate {name}: " if name else ""
        raise ModelError(
            f"{where}a model of the family {family} cannot be trained for few bits, because its graph rounds more than "
            f"linear maps and embeddings, and would answer otherwise than the trained model; export it in int8 without "
            f"this training, or use one of {', '.join(SERVED)}"
        )
