"""What the fork server of the tests imports before its first fork: the libraries of engines and packers."""

from __future__ import annotations

import mlflow.transformers
import transformers.models.bert.modeling_bert
from transformers import AutoModelForSequenceClassification, AutoTokenizer, pipeline

import tasks.training.jobs

__all__ = ["AutoModelForSequenceClassification", "AutoTokenizer", "mlflow", "pipeline", "tasks", "transformers"]
