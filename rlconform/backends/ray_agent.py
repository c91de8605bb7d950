"""The program that Ray starts for each agent: it runs the agent, which ends with the raylet.

    raylet ──starts──▶ this program, which becomes Ray's own: python ray_agent.py PROGRAM ARGUMENTS
    raylet dies ──▶ the agent notices ──▶ it ends; Ray's own waits for Ray's server first

An agent whose raylet was killed tells Ray's server so, and waits 60 s for the answer. A killed
driver takes the server of its local Ray with it, so its agents would be left for a minute.
"""

from __future__ import annotations

import os
import runpy
import sys


def main() -> None:
    """Run the agent."""
    del sys.argv[0]
    sys.path[0] = os.path.dirname(sys.argv[0])  # as if Python had been started with the program
    from ray._private import process_watcher  # noqa: PLC0415 - found only from there

    process_watcher.report_raylet_error_logs = lambda *_: None
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
