"""Mutants of the plane of one process, ``memory``."""
