"""Mutants of ``ray_store``, whose owner starts a plane to which other processes attach clients."""
