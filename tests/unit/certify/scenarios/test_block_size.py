"""``BlockSize``: fast planes have large blocks, and others none."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest

from rlconform.backends.memory import MemoryClient
from rlconform.certify.assertions.expect import FewerExamples
from rlconform.certify.scenarios import block_size
from rlconform.certify.scenarios.block_client import NoBlocks
from rlconform.certify.scenarios.block_size import SIZES, BlockSize

Put = Callable[[], None]


class ManyRows(MemoryClient):
    """A client that does something before a put of many rows."""

    def __init__(self, before: Put) -> None:
        super().__init__({})
        self._before = before

    def put_samples(self, sample_ids: list[str], *args: Any, **kwargs: Any) -> Any:
        if len(sample_ids) > 10:
            self._before()
        return super().put_samples(sample_ids, *args, **kwargs)


def raises() -> None:
    raise RuntimeError("too many rows")


@pytest.fixture
def hangs() -> Iterator[Put]:
    """A put that does not return before the test ends."""
    end = threading.Event()
    yield lambda: bool(end.wait()) and None
    end.set()


def test_a_fast_plane_has_the_largest_blocks_and_is_measured_once() -> None:
    puts: list[None] = []
    size = BlockSize()
    with closing(ManyRows(lambda: puts.append(None))) as client:
        assert [size.of(client, 9.0), size.of(client, 9.0)] == [SIZES[0]] * 2
    assert len(puts) == 1


def test_a_slower_plane_has_smaller_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    took = block_size.BLOCK_S * 2
    monkeypatch.setattr(block_size, "_seconds_of", lambda _client, _rows: took)
    with closing(MemoryClient({})) as client:
        assert BlockSize().of(client, 9.0) == SIZES[1]


def expect_none(before: Put, operation_s: float) -> None:
    size = BlockSize()
    with closing(ManyRows(before)) as client:
        for _ in range(2):
            with pytest.warns(FewerExamples, match="too slow"), pytest.raises(NoBlocks):
                size.of(client, operation_s)


def test_a_plane_that_refuses_so_many_rows_has_none() -> None:
    expect_none(raises, 9.0)


def test_a_plane_that_hangs_has_none(hangs: Put) -> None:
    expect_none(hangs, 0.1)
