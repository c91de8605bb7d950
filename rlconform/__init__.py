"""Conformance kit for RL data planes: a reference plane, a contract, and the checks that hold a plane to it."""

__version__ = "0.1.0"
