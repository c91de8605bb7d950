"""Lets the processes of a job run Megatron-core on the CPU; Python imports this at its start.

    PYTHONPATH of the job ──▶ sitecustomize, in every Python of the job
    import rlconform.grpo.workers.megatron, in a rank ──▶ use_cpu_for_cuda ──▶ the import goes on

A rank of a Slurm job is the real one, so it can't call ``cpu_compat`` itself, as the ranks of
``tests/e2e/megatron`` do. Processes that need no Megatron import nothing more than this.
"""

from __future__ import annotations

import sys
from importlib.abc import MetaPathFinder
from pathlib import Path
from typing import Any

COMPAT = Path(__file__).parents[2] / "megatron" / "cpu_compat.py"


class MegatronOnCpus(MetaPathFinder):
    """Finds no module; patches the process before it imports the ranks on Megatron."""

    def find_spec(self, name: str, _path: Any = None, _target: Any = None) -> None:
        """Patch before the one package is imported."""
        if name != "rlconform.grpo.workers.megatron":
            return
        sys.meta_path.remove(self)
        import runpy

        runpy.run_path(str(COMPAT))["use_cpu_for_cuda"]()


sys.meta_path.insert(0, MegatronOnCpus())
