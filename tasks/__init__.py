"""The stages and what they do. The package is read at its first import, and loaded from what was read: see
``own_sources``."""

from tasks.own_sources import load_as_read

load_as_read()
