"""Conformance tests for RL data planes: contract, reference planes, checks, certificate."""

__version__ = "0.1.0"
