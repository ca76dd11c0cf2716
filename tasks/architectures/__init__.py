"""Encoder architectures, one file each: names in a config, construction of students, readable signals, masked-LM head,
droppable layers, export.

No module here imports torch or transformers while it is loaded, so that recipes are checked without them; functions
that handle a model import inside. ``architecture.py`` is the interface, ``known_architectures.py`` the list.
"""
