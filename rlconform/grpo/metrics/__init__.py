"""Metrics of a run: a file that the run writes, a reader, and gates that check it."""
