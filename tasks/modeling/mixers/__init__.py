"""Mixers: ways for the tokens of a text to read each other, one file each."""
