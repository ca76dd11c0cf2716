"""Knobs of candidates by their makers, of searches, and of the texts that models write."""
