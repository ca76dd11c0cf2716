"""How runs are found and compared in MLflow: who started them from which source, tags that all runs of one flow run
share, parameters with flat names, and the data that they read."""

from __future__ import annotations

import contextlib
import getpass
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

FLOW_RUN, STAGE_RUN, CANDIDATE_RUN, SCORES_RUN = "flow", "stage", "candidate", "scores"
"""Values of the tag ``limbeck``: the kind of a run."""
SHARED_TAGS = ("recipe", "task", "teacher", "mlflow.user", "mlflow.source.name", "mlflow.source.type")
"""Tags of a flow run that its stages and candidates have, too."""
TRAINING_PAGES = "workflowType=machine_learning"
"""MLflow 3 opens an experiment on its pages for agents, which show no runs, unless a link asks for these."""
LONGEST_PARAMETER = 5000  # characters; MLflow's databases store 6,000, and older servers fewer
DIGEST_DIGITS = 8  # as MLflow's own digests of data, which its pages show beside the name


@dataclass(frozen=True)
class DataSource:
    """One source of rows or texts: its name, its place, its digest, and its use, MLflow's context of a data set."""

    name: str
    place: str
    digest: str
    context: str


def source_tags(command: str, deployment: str = "") -> dict[str, str]:
    """Return MLflow's tags on the user, and on the command or the deployment that started a run."""
    with contextlib.suppress(OSError, KeyError, ImportError):  # a container may run without a user's name
        user = {"mlflow.user": getpass.getuser()}
        return user | source_of(command, deployment)
    return source_of(command, deployment)


def account_of_decisions() -> str:
    """Return the account of MLflow under which a decision is recorded, or the user of this machine without one; empty
    if there is neither. MLflow has checked the password of that account; it does not check this record."""
    with contextlib.suppress(OSError, KeyError, ImportError):
        return os.environ.get("MLFLOW_TRACKING_USERNAME") or getpass.getuser()
    return ""


def source_of(command: str, deployment: str) -> dict[str, str]:
    """Return MLflow's tags on the source of a run."""
    kind, name = ("JOB", deployment) if deployment else ("LOCAL", command)
    return {"mlflow.source.type": kind, "mlflow.source.name": name} if name else {}


def shared_tags(tags: Mapping[str, str]) -> dict[str, str]:
    """Return the tags of a flow run that are repeated on its stages and candidates."""
    return {name: tags[name] for name in SHARED_TAGS if name in tags}


def flat_parameters(values: Mapping[str, object], prefix: str = "") -> dict[str, str]:
    """Return nested values as parameters with dotted names; the entries of a list are named by their ``name`` if they
    have one, and a list of plain values is one parameter. None and empty values are left out."""
    flat: dict[str, str] = {}
    for name, value in values.items():
        where = f"{prefix}{name}"
        if isinstance(value, Mapping):
            flat |= flat_parameters(value, f"{where}.")
        elif isinstance(value, Sequence) and not isinstance(value, str) and any(isinstance(v, Mapping) for v in value):
            flat |= flat_parameters({entry_name(one, number): one for number, one in enumerate(value, 1)}, f"{where}.")
        elif value not in (None, "", [], ()):
            text = ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
            flat[where] = text[:LONGEST_PARAMETER]
    return flat


def entry_name(entry: Any, number: int) -> str:
    """Return the name of an entry of a list, or its number."""
    return str(entry["name"]) if isinstance(entry, Mapping) and entry.get("name") else str(number)


def data_inputs(sources: Sequence[DataSource]) -> list[Any]:
    """Return sources as MLflow's data sets, with their use as context."""
    from mlflow.entities import Dataset, DatasetInput, InputTag

    return [
        DatasetInput(
            Dataset(one.name, one.digest[:DIGEST_DIGITS], *typed_source(one.place)),
            [InputTag("mlflow.data.context", one.context)],
        )
        for one in sources
    ]


def typed_source(place: str) -> tuple[str, str]:
    """Return the type and the description of a data set's source: a local path, or an id of the hub."""
    local = Path(place).expanduser().exists()
    return ("local", json.dumps({"uri": place})) if local else ("hugging_face", json.dumps({"path": place}))


def page_of_run(root: str, experiment: str, run: str) -> str:
    """Return the address of a run's page."""
    return f"{root}/#/experiments/{experiment}/runs/{run}?{TRAINING_PAGES}"


def file_page(link: str, path: str) -> str:
    """Return the address of MLflow's page of a run's file, from that of the run's page."""
    page, _, query = link.partition("?")
    return f"{page}/artifacts/{path}{'?' if query else ''}{query}"


def candidates_page(root: str, experiment: str, run: str) -> str:
    """Return the address of a list of runs that has the candidates of one flow run, the best first, and no stages.

    MLflow folds nested runs below their parent unless the list is sorted by a figure.
    """
    wanted = quote(f"tags.limbeck = '{CANDIDATE_RUN}' and tags.mlflow.parentRunId = '{run}'")
    order = f"orderByKey={quote('metrics.`score`')}&orderByAsc=false"
    return f"{root}/#/experiments/{experiment}/runs?{TRAINING_PAGES}&searchFilter={wanted}&{order}"
