"""Trained models made smaller without training: pieces of the vocabulary, neurons."""
