"""Environment variables by which runs, one after another, share what is slow to start."""

from __future__ import annotations

#: Address of a Ray that is there for all of them.
SHARED_RAY = "RLCONFORM_RAY"
#: Namespace of actors in it, which wait for the next run.
KEPT_ACTORS = "RLCONFORM_ACTORS"
