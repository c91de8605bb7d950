"""A Ray cluster and actors that the consecutive trials of a job share.

    job ──starts──▶ this module as a process: ensure_ray() ──address, worker server──▶ job
    trial ──joins──▶ that Ray; its checks use actors that are already running

Otherwise a trial would spend most of its time on starting processes. Planes that a trial opens
still end with it. An actor that hangs is killed and replaced.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping

from rlconform._env import KEPT_ACTORS, SHARED_RAY
from rlconform.backends.ray_worker import WORKER_SERVER
from rlconform.backends.ray_worker_server import NEEDED_BY_WORKERS, start_worker_server
from rlconform.certify.isolation.client_actor import NEEDED_BY_CLIENTS
from rlconform.certify.isolation.workspace import Workspace

NAMESPACE = "rlconform.self_test"


class SharedRay:
    """A Ray cluster in a separate process, which ends when this process ends."""

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
            start_new_session=True,  # the self-test handles Ctrl-C
        )

    def environment(self) -> Mapping[str, str]:
        """Wait for the cluster; return variables to join it, or raise ``RuntimeError``."""
        assert self._process.stdout is not None
        address, _, server = self._process.stdout.readline().strip().partition(" ")
        if not address:
            raise RuntimeError("the Ray of the self-test did not start; its messages are above")
        return {SHARED_RAY: address, KEPT_ACTORS: NAMESPACE, WORKER_SERVER: server}

    def close(self) -> None:
        """Stop the cluster and all processes that it leaves behind; wait until they have ended."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
        self._workspace.close()


def serve() -> None:
    """Run a Ray cluster until standard input closes, which happens when the parent process ends."""
    # All workers are of this cluster, the only one that a server which has imported Ray can serve.
    start_worker_server((*NEEDED_BY_WORKERS, *NEEDED_BY_CLIENTS, "ray"))
    import ray  # noqa: PLC0415 - only in the separate process

    from rlconform.backends.ray_runtime import ensure_ray  # noqa: PLC0415

    with ensure_ray():
        address = ray.get_runtime_context().gcs_address
        sys.stdout.write(f"{address} {os.environ.get(WORKER_SERVER, '')}\n")
        sys.stdout.flush()
        sys.stdin.read()


if __name__ == "__main__":
    serve()
