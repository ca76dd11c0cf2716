"""Typed results: one row for each model of a run, and the run that they belong to. Plain data, which every package may
import."""
