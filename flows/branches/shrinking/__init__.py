"""Makers other than distillation and layer dropping, and the packed sizes of models with zeros."""
