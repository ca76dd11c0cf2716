"""Classes of transformers that load the models of task types: ``auto_class`` of a type's ``Head``.

transformers is imported when one is requested.
"""

from __future__ import annotations

from typing import Any


def sequence_classifier() -> Any:
    """Return the class of models with one vector for each text."""
    from transformers import AutoModelForSequenceClassification

    return AutoModelForSequenceClassification


def token_classifier() -> Any:
    """Return the class of models with one vector for each token."""
    from transformers import AutoModelForTokenClassification

    return AutoModelForTokenClassification
