"""Tests of policy workers as ranks in several processes."""
