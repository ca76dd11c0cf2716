"""Structured pruning: which parts of a trained model matter, and the model without the others."""
