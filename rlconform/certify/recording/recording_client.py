"""``RecordingClient``: a client whose calls a ``Recording`` keeps.

check ──call──▶ RecordingClient ──begin──▶ Recording
                    │                         ▲
                    └──call──▶ plane ──end────┘
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from rlconform.certify.recording.base_exceptions import violation_of
from rlconform.certify.recording.busy_time import BusyTime
from rlconform.certify.recording.recorder import OWNER, CallRecord, Recording
from rlconform.contract import CLIENT_METHODS, DataPlaneClient


class RecordingClient:
    """A client whose calls are recorded under the name ``who``.

    ``measuring`` is a context manager around each call; it adds the plane's time to a ``BusyTime``.
    """

    def __init__(
        self,
        client: DataPlaneClient,
        recording: Recording,
        who: str = OWNER,
        measuring: Callable[[BusyTime], AbstractContextManager[None]] = BusyTime.running,
    ) -> None:
        self.recording = recording
        recording.register_client(who, client)
        self._who = who
        self._client = client
        self._measuring = measuring
        self._calls = threading.local()  # end: when this thread's last call returned
        for method in CLIENT_METHODS:
            setattr(self, method, self._recorded(method, getattr(client, method)))

    @property
    def is_remote(self) -> bool:
        """Whether the calls are made in another process."""
        return self._who != OWNER

    @property
    def last_end(self) -> float:
        """When this thread's last call ended: seconds on the clock that all processes share."""
        span: tuple[float, float] | None = getattr(self._client, "last_span", None)
        return self._calls.end if span is None else span[1]

    def _recorded(self, method: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def recorded(*args: Any, **kwargs: Any) -> Any:
            record = CallRecord(self._who, method, args, kwargs)
            self.recording.begin(record)
            compare = self.recording.watch_arguments(record)
            result, raised = None, None
            try:
                with self._measuring(self.recording.plane_time):
                    result = call(*args, **kwargs)
            except BaseException as error:
                raised = error
                if self.recording.is_interrupt(error):
                    raise
                violation = violation_of(error, method)
                if violation is error:
                    raise
                raise violation from error
            finally:
                self._calls.end = time.monotonic()
                compare()
                self.recording.end(record, result, raised)
            return result

        return recorded
