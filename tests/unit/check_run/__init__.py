"""Tests of the rules of ``check-run``, on logs of a small model of a framework."""
