"""Environment variables that let successive runs share Ray and its actors, which start slowly."""

from __future__ import annotations

#: Address of a running Ray that all of them use.
SHARED_RAY = "RLCONFORM_RAY"
#: Namespace of the actors that wait there for the next run.
KEPT_ACTORS = "RLCONFORM_ACTORS"
