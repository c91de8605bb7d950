"""Turns check results into requirement results, a verdict and the files of the report."""
