"""Mutants of ``memory``, the built-in plane of one process."""
