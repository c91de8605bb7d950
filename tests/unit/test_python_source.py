"""Source is read in one thread at a time, as Python 3.11 needs it."""

from __future__ import annotations

import ast
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from rlconform import _python_source


def test_threads_read_source_one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    busy, ordinary = threading.Lock(), ast.parse

    def alone(source: str) -> ast.Module:
        assert busy.acquire(blocking=False), "expected one thread; got two that parse at once"
        try:
            time.sleep(0.001)  # another thread gets its chance
            return ordinary(source)
        finally:
            busy.release()

    monkeypatch.setattr(_python_source, "ast", SimpleNamespace(parse=alone))  # not for pytest too
    with ThreadPoolExecutor(8) as pool:
        trees = list(pool.map(_python_source.parse, ["x = 1"] * 32))
    assert {ast.dump(tree) for tree in trees} == {ast.dump(ordinary("x = 1"))}
