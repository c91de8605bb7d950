"""Tests of asynchronous training on a simulated clock."""
