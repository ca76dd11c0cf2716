"""Smaller vocabularies: which pieces a tokenizer keeps, and how each kind of tokenizer goes on without the others."""
