"""Environment variables that let runs share Ray, its actors and its imports, which start slowly."""

from __future__ import annotations

#: Address of a running Ray that all runs use.
SHARED_RAY = "RLCONFORM_RAY"
#: Ray namespace of the actors that are kept for the next run.
KEPT_ACTORS = "RLCONFORM_ACTORS"
#: With ``0`` Ray starts each worker as a new process, see ``backends.ray_worker_server``.
FORK_WORKERS = "RLCONFORM_FORK_RAY_WORKERS"
