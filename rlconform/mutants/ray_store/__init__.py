"""Mutants of the plane of several processes, ``ray_store``."""
