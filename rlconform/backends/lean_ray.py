"""``without_extras``: starts Ray without the processes that a plane on one machine never uses.

It also makes Ray ask a worker server for its workers, if this process has one, and start agents
that end with their raylet.

Ray's dashboard serves pages, its log monitor prints what workers print, its autoscaler asks for
more machines. Each is a Python process that takes half a second of CPU time to start, and more
while Ray runs; ``ray.init`` also waits for the dashboard. Ray has no public options for them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from rlconform.backends import ray_agent, ray_worker
from rlconform.backends.ray_worker import WORKER_SERVER

#: Name of Ray's function that returns the beginning of an agent's command, up to its program.
_AGENT_COMMAND = "_build_python_executable_command_memory_profileable"


@contextmanager
def without_extras() -> Iterator[None]:
    """Start no such process in the block; a Ray with other internals starts them all the same."""
    try:
        from ray._private import process_watcher, services  # noqa: PLC0415 - they may not exist
        from ray._private.node import Node  # noqa: PLC0415
        from ray._private.parameter import RayParams  # noqa: PLC0415

        known = {"include_log_monitor", "no_monitor"} <= vars(RayParams()).keys()
        known = known and hasattr(Node, "start_api_server")
        known = known and hasattr(services, _AGENT_COMMAND)
        known = known and hasattr(process_watcher, "report_raylet_error_logs")
    except (ImportError, TypeError):
        known = False
    if not known:
        yield
        return
    ordinary: Any = RayParams.update_if_absent
    agent_command: Any = getattr(services, _AGENT_COMMAND)

    def with_own_program(*arguments: Any, **options: Any) -> list[str]:
        return [*agent_command(*arguments, **options), ray_agent.__file__]

    def update_if_absent(params: Any, **defaults: object) -> None:
        params.no_monitor = True
        params.include_log_monitor = False
        if os.environ.get(WORKER_SERVER):
            params.worker_path = ray_worker.__file__
        ordinary(params, **defaults)

    with (
        patch.object(RayParams, "update_if_absent", update_if_absent),
        patch.object(Node, "start_api_server", lambda _node, **_options: None),
        patch.object(services, _AGENT_COMMAND, with_own_program),
    ):
        yield
