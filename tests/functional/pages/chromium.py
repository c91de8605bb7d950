"""``Chromium``: a headless browser, driven over its DevTools protocol through two pipes.

    test ──commands──▶ fd 3 ┐
                            ├ chromium --remote-debugging-pipe
    test ◀──answers─── fd 4 ┘   messages are JSON, each ended by a zero byte

One thread: a command is sent, and messages are read until its answer; the others are events, of
which exceptions and messages of the console are kept.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
import time
from base64 import b64decode
from pathlib import Path
from types import TracebackType
from typing import Any

#: Seconds that the browser may take to answer.
PATIENCE_S = 60.0


class Chromium:
    """A browser with one page open."""

    def __init__(self, profile: Path) -> None:
        found = shutil.which("chromium") or shutil.which("google-chrome")
        assert found, "expected chromium; got none on PATH: run ci/system_packages.sh"
        read_commands, self._out = os.pipe()
        self._in, write_answers = os.pipe()
        wanted = "--headless --no-sandbox --disable-gpu --hide-scrollbars --no-first-run"
        line = [found, *wanted.split(), "--remote-debugging-pipe", f"--user-data-dir={profile}"]
        script = f'exec "$@" 3<&{read_commands} 4>&{write_answers}'
        self._process = subprocess.Popen(
            ["bash", "-c", script, "chromium", *line],
            pass_fds=(read_commands, write_answers),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(read_commands)
        os.close(write_answers)
        self._buffer = b""
        self._sent = 0
        self._session = ""
        self._loads = 0
        self.errors: list[str] = []  # what the console said, and exceptions
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def __enter__(self) -> Chromium:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        os.close(self._out)
        self._process.kill()
        self._process.wait(PATIENCE_S)
        os.close(self._in)

    def call(self, method: str, **params: Any) -> Any:
        """Send a command and return its answer."""
        self._sent += 1
        message = {"id": self._sent, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while (answer := self._next()).get("id") != self._sent:
            self._hear(answer)
        assert "error" not in answer, f"{method}: {answer['error']}"
        return answer["result"]

    def _next(self) -> dict[str, Any]:
        deadline = time.monotonic() + PATIENCE_S
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._in], [], [], max(0.0, deadline - time.monotonic()))
            data = os.read(self._in, 1 << 16) if ready else b""
            assert data, "expected an answer of chromium; got none"
            self._buffer += data
        text, _, self._buffer = self._buffer.partition(b"\0")
        loaded: dict[str, Any] = json.loads(text)
        return loaded

    def _hear(self, event: dict[str, Any]) -> None:
        params = event.get("params", {})
        match event.get("method"):
            case "Page.loadEventFired":
                self._loads += 1
            case "Runtime.exceptionThrown":
                self.errors.append(str(params["exceptionDetails"]))
            case "Runtime.consoleAPICalled" if params["type"] in {"error", "warning"}:
                self.errors.append(str(params["args"]))
            case "Log.entryAdded" if params["entry"]["level"] in {"error", "warning"}:
                self.errors.append(params["entry"]["text"])

    def open(self, page: Path, width: int = 1200, fragment: str = "", dark: bool = False) -> None:
        """Open a file at a width in pixels, and wait until it has loaded."""
        phone = width < 600
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=900, deviceScaleFactor=1, mobile=phone,
        )  # fmt: skip
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call("Page.navigate", url="about:blank")
        before = self._loads
        self.call("Page.navigate", url=f"{page.resolve().as_uri()}{fragment}")
        while self._loads == before or self.run("document.readyState") != "complete":
            self._hear(self._next()) if self._loads == before else None

    def run(self, expression: str) -> Any:
        """Evaluate JavaScript in the page and return its value."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def screenshot(self, path: Path) -> Path:
        """Write the whole page as a PNG."""
        shot = self.call("Page.captureScreenshot", captureBeyondViewport=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b64decode(shot["data"]))
        return path

    def pdf(self, path: Path) -> Path:
        """Write the page as it is printed on A4."""
        printed = self.call("Page.printToPDF", paperWidth=8.27, paperHeight=11.69)
        path.write_bytes(b64decode(printed["data"]))
        return path
