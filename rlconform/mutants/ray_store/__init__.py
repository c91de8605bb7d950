"""Mutants of ``ray_store``, the reference plane for several processes."""
