"""Models whose attention transformers does not have: configuration, layers and mixers, importable with torch and
transformers alone. Packed as the distribution ``limbeck-models``, whose import registers the classes."""
