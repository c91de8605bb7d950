"""Environment variables that let successive runs share Ray and its actors, which start slowly."""

from __future__ import annotations

#: Address of a running Ray that all runs use.
SHARED_RAY = "RLCONFORM_RAY"
#: Ray namespace of the actors that are kept for the next run.
KEPT_ACTORS = "RLCONFORM_ACTORS"
