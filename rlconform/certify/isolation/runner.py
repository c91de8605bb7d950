"""``Runner``: runs one certification, as several planes at a time if the options ask for it.

Runner ──a thread each──▶ ShareRunner ──▶ test processes, one after another
 waits for all of them         └──events──▶ RunState: the record, under a lock
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed

from rlconform.certify.isolation.forkserver import ForkServer
from rlconform.certify.isolation.run_state import Listener, RunState
from rlconform.certify.isolation.share_runner import PlaneDidNotStart, ShareRunner
from rlconform.certify.isolation.shares import Share
from rlconform.certify.options import CertifyOptions
from rlconform.certify.results import RunRecord

__all__ = ["Listener", "PlaneDidNotStart", "Runner"]


class Runner:
    """Runs one certification. It does not close a ``fork_server`` that the caller passes."""

    def __init__(
        self,
        options: CertifyOptions,
        listener: Listener | None = None,
        fork_server: ForkServer | None = None,
        on_end: Callable[[], None] = lambda: None,
    ) -> None:
        self._options, self._on_end = options, on_end
        self._state = RunState(options, listener)
        self._own = [ForkServer() for _ in range(options.jobs - (fork_server is not None))]
        self._fork_servers = ([fork_server] if fork_server else []) + self._own

    @property
    def run(self) -> RunRecord:
        """The results so far."""
        return self._state.run

    def certify(self) -> RunRecord:
        """Run every check. When interrupted, end the processes and return the results so far.

        Raises:
            PlaneDidNotStart: The target can't be opened.
        """
        started = time.monotonic()
        run = self.run
        try:
            gave_up = not (self._run_all() if self._options.jobs == 1 else self._run_shares())
            if gave_up:
                run.notes.append("stopped: two test processes in a row gave no result")
            self._on_end()
        except KeyboardInterrupt:
            if not run.plan:
                raise
            run.notes.append("interrupted: the report is partial")
        finally:
            for fork_server in self._own:
                fork_server.close()
            if fewer := run.fewer_examples:
                tried = f"fewer were tried by {len(fewer)} of the checks, such as {fewer[0]}"
                run.notes.append(f"no time for all generated examples: {tried}")
            run.seconds = time.monotonic() - started
        run.complete = bool(run.plan) and not run.pending
        return run

    def _run_all(self, ids: frozenset[str] | None = None) -> bool:
        """Run all checks, or these, on one plane at a time; return False if that was given up."""
        only = self._fork_servers[0]
        return ShareRunner(self._state, self._options, only, Share(), ids).run()

    def _run_shares(self) -> bool:
        """Run the shares at the same time, then, on one plane, what could not be run beside others.

        Returns as ``_run_all``.
        """
        count = self._options.jobs
        runners = [
            ShareRunner(self._state, self._options, fork_server, Share(number, count))
            for number, fork_server in enumerate(self._fork_servers)
        ]
        failed: list[PlaneDidNotStart] = []
        with ThreadPoolExecutor(count, "share") as pool:
            running = [pool.submit(runner.run) for runner in runners]
            try:
                for done in as_completed(running):
                    error = done.exception()
                    if isinstance(error, PlaneDidNotStart):
                        failed.append(error)
                    elif error is not None:
                        raise error
            finally:
                if not all(each.done() for each in running):
                    self._state.stop()
        run = self.run
        if not run.plan:
            if failed:
                raise failed[0]
            return False
        run.results = {each.id: run.results[each.id] for each in run.plan if each.id in run.results}
        if failed:
            run.notes.append(f"a plane beside another did not start: {failed[0]}")
        left = frozenset(check.id for check in run.pending)
        return self._state.stopped or not left or self._run_all(left)
