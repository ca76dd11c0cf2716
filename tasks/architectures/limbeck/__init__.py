"""Encoders with attentions of our own, made from a BERT."""
