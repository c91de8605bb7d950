"""The pipe by which a test process tells the runner of what it does."""

from __future__ import annotations

import json
import os
import threading
from typing import Any


class EventPipe:
    """The pipe to the runner; without one, nothing is sent."""

    def __init__(self, fd: int | None) -> None:
        self._fd = fd
        self._lock = threading.Lock()
        if fd is not None:
            os.set_inheritable(fd, False)  # the plane's processes must not keep it open

    @property
    def watched(self) -> bool:
        """Whether a runner listens."""
        return self._fd is not None

    def send(self, kind: str, **body: Any) -> None:
        """One event, one line."""
        if self._fd is not None:
            data = (json.dumps({"event": kind, **body}) + "\n").encode()
            with self._lock:
                while data:
                    data = data[os.write(self._fd, data) :]
