"""Waits until all nodes of a job have joined its Ray: ``python -m`` this module.

    ADDRESS  SECONDS  FILE  NODE...

It ends with 0, or with 69 after that many seconds; the missing nodes' names are then in FILE.
"""

from __future__ import annotations

import logging
import socket
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

_POLL_S = 0.5
#: Exit code: nodes are missing (EX_UNAVAILABLE).
MISSING = 69


def missing_nodes(expected: Iterable[str], nodes: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the expected names that none of Ray's living nodes has."""
    there = {node["NodeName"] for node in nodes if node["Alive"]}
    return [name for name in expected if name not in there]


def await_nodes(address: str, timeout_s: float, expected: Sequence[str]) -> list[str]:
    """Poll Ray until all nodes have joined or the time is over; return those that are missing."""
    end = time.monotonic() + timeout_s
    missing = list(expected)
    while missing and time.monotonic() < end:
        if ray_nodes := _nodes_of(address):
            missing = missing_nodes(expected, ray_nodes)
        if missing:
            time.sleep(_POLL_S)
    return missing


def _nodes_of(address: str) -> list[dict[str, Any]]:
    """Return Ray's nodes; none while its head does not answer."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), _POLL_S).close()  # Ray would try for minutes
    except OSError:
        return []
    import ray  # noqa: PLC0415 - only in the job

    try:
        if not ray.is_initialized():
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except ConnectionError as error:  # it is busy, or still starting
        sys.stderr.write(f"Ray at {address} does not answer yet: {error}\n")
        return []
    nodes: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
    return nodes


def main(address: str, timeout_s: str, file: str, *expected: str) -> int:
    """Wait; print and write the names of the nodes that are missing."""
    missing = await_nodes(address, float(timeout_s), expected)
    if not missing:
        return 0
    Path(file).write_text(" ".join(missing) + "\n", "utf-8")
    sys.stderr.write(
        f"expected {len(expected)} nodes in Ray within {timeout_s} s; "
        f"missing: {', '.join(missing)}: see their logs beside this one\n"
    )
    return MISSING


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
