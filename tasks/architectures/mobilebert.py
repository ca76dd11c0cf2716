"""MobileBERT (Sun et al. 2020, arXiv:2004.02984): narrow layers between bottlenecks, whose FLOPs are counted."""

from __future__ import annotations

from tasks.architectures.architecture import Architecture

MOBILEBERT = Architecture()
