"""Tests of the rewards of rows."""
