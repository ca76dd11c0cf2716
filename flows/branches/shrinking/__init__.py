"""The makers of models that become smaller piece by piece, and the sizes of those that have zeros."""
