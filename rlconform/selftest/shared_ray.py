"""A Ray and actors that a job's trials share, one trial after another.

    job ──starts──▶ this module as a process: ensure_ray() ──address──▶ job
    trial ──joins──▶ that Ray; its checks use actors that have imported what they need

A trial spends most of its time on starting processes otherwise. What a trial opens still ends with
it; an actor that hangs is ended, and another takes its place.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping

from rlconform._env import KEPT_ACTORS, SHARED_RAY
from rlconform.certify.isolation.workspace import Workspace

NAMESPACE = "rlconform.self_test"


class SharedRay:
    """A Ray in a process of its own; it ends when this one does."""

    def __init__(self) -> None:
        self._workspace = Workspace()
        environment = self._workspace.environment()
        environment.pop(SHARED_RAY, None)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "rlconform.selftest.shared_ray"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            text=True,
            start_new_session=True,  # Ctrl-C is the self-test's to handle
        )

    def environment(self) -> Mapping[str, str]:
        """What test processes need to join; waits until the cluster is up.

        Raises:
            RuntimeError: It did not start.
        """
        assert self._process.stdout is not None
        address = self._process.stdout.readline().strip()
        if not address:
            raise RuntimeError("the Ray of the self-test did not start; its words are above")
        return {SHARED_RAY: address, KEPT_ACTORS: NAMESPACE}

    def close(self) -> None:
        """End it, wait for its end, and end what outlives it: Ray doesn't wait for all of its."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
        self._workspace.close()


def serve() -> None:
    """Run a Ray until standard input ends, as it does when whoever wanted it ends."""
    import ray  # noqa: PLC0415 - in the process of its own only

    from rlconform.backends.ray_runtime import ensure_ray  # noqa: PLC0415

    with ensure_ray():
        sys.stdout.write(f"{ray.get_runtime_context().gcs_address}\n")
        sys.stdout.flush()
        sys.stdin.read()


if __name__ == "__main__":
    serve()
