"""Architectures of encoders, one file each: names in a config, how a student is built, what can be read of a model, its
head for words, which layers can be dropped, how it is exported.

No module here imports torch or transformers while it is loaded, so that a recipe is checked without them; functions
that handle a model import inside. ``architecture.py`` is the interface, ``registry.py`` the list.
"""
