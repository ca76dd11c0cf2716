"""The tracker: all of Limbeck's access to MLflow. No other package imports MLflow."""

from __future__ import annotations

from tasks.ports.tracking.candidates import CandidateLog
from tasks.ports.tracking.versions import Versions


class Tracker(CandidateLog, Versions):
    """One parent run, its children, and the registry behind it."""
