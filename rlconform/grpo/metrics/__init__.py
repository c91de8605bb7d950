"""Metrics of a run: written as it goes, read back, and held against gates."""
