"""A client that writes down every call: evidence, a reproducer, and whose fault an error is.

An exception that a recorded call raised is the plane's; any other is ours.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from tensordict import TensorDictBase

from rlconform.contract import CLIENT_METHODS, DataPlaneClient

#: Steps kept per check; a check of concurrency makes thousands.
MAX_STEPS = 200


@dataclass
class Step:
    """One client call: who called what, with which arguments, and what came."""

    who: str
    method: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    outcome: str = "did not return"
    result: Any = None
    error: BaseException | None = None
    seconds: float = 0.0

    def describe(self) -> str:
        """One line for people."""
        shown = [brief(value) for value in self.args]
        shown += [f"{name}={brief(value)}" for name, value in self.kwargs.items()]
        return f"{self.who}.{self.method}({', '.join(shown)}) -> {self.outcome}"


class Recording:
    """The calls of one check, over all its clients and threads."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.plane_seconds = 0.0
        self.dropped = 0
        self._errors: set[int] = set()
        self._alive: list[BaseException] = []  # keeps the ids in _errors from being reused
        self._lock = threading.Lock()

    def begin(self, step: Step) -> None:
        """Note a call that starts."""
        with self._lock:
            if len(self.steps) < MAX_STEPS:
                self.steps.append(step)
            else:
                self.dropped += 1

    def end(self, step: Step, started: float) -> None:
        """Note that the call came back, with an error or without."""
        with self._lock:
            step.seconds = time.monotonic() - started
            self.plane_seconds += step.seconds
            if step.error is not None:
                self._errors.add(id(step.error))
                self._alive.append(step.error)

    def is_planes(self, error: BaseException | None) -> bool:
        """Whether a recorded call raised ``error`` or anything that it was raised from."""
        while error is not None:
            if id(error) in self._errors:
                return True
            error = error.__cause__ or error.__context__
        return False

    def blame(self, error: BaseException) -> str:
        """Which call raised ``error``, in one line; "" if none did."""
        for step in self.steps:
            if step.error is error:
                return f"the plane's {step.method} {step.outcome}"
        return ""

    def lines(self) -> list[str]:
        """The calls in order, for the report."""
        tail = [f"... and {self.dropped} more calls"] if self.dropped else []
        return [step.describe() for step in self.steps] + tail


class RecordingClient:
    """A client of which every call is written to a ``Recording``."""

    def __init__(self, client: DataPlaneClient, recording: Recording, who: str = "client") -> None:
        self._client = client
        self.recording = recording
        self._who = who
        for method in CLIENT_METHODS:
            setattr(self, method, self._recorded(method, getattr(client, method)))

    def _recorded(self, method: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def recorded(*args: Any, **kwargs: Any) -> Any:
            step = Step(self._who, method, args, kwargs)
            self.recording.begin(step)
            started = time.monotonic()
            try:
                result = call(*args, **kwargs)
            except BaseException as error:
                step.error = error
                step.outcome = f"raised {type(error).__name__}: {shorten(str(error))}"
                raise
            else:
                step.result, step.outcome = result, brief(result)
                return result
            finally:
                self.recording.end(step, started)

        return recorded


def shorten(text: str, limit: int = 200) -> str:
    """``text`` on one line, at most ``limit`` characters."""
    line = " ".join(text.split())
    return line if len(line) <= limit else f"{line[: limit - 3]}..."


def brief(value: Any) -> str:
    """A value as one short piece of text: tensors by dtype and shape, long lists by length."""
    if isinstance(value, torch.Tensor):
        kind = "jagged" if value.is_nested else "x".join(map(str, value.shape)) or "scalar"
        return f"{str(value.dtype).removeprefix('torch.')}[{kind}]"
    if isinstance(value, TensorDictBase):
        # keys(is_leaf=None) would split object columns; get() never fetches their content
        columns = ", ".join(f"{key}: {brief(value.get(key))}" for key in sorted(value.keys()))
        return f"{{{columns}}} x {tuple(value.batch_size)}"
    if isinstance(value, list | tuple) and len(value) > 4:
        return f"[{', '.join(brief(item) for item in value[:3])}, ... {len(value)} in all]"
    if hasattr(value, "sample_ids"):
        return f"meta of {brief(value.sample_ids)}"
    return shorten(repr(value), 80)
