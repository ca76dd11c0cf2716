"""Stages and their implementation. The package's sources are read at its first import, and its modules are loaded from
that copy: see ``own_sources``."""

from tasks.own_sources import load_as_read

load_as_read()
