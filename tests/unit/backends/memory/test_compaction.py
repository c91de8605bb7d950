"""Compaction in the memory plane while other threads use the rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from tensordict import TensorDict

from rlconform.backends.memory import MemoryClient, engine
from rlconform.wire import object_column, rows_of

WIDTH = 4096  # so that a few rows are enough for a compaction
IDS = list("abcdefgh")


@pytest.fixture
def client() -> Iterator[MemoryClient]:
    client = MemoryClient()
    client.register_partition("p", ["x"], 8, ["t"])
    yield client
    client.close()


def columns(n_rows: int, start: int = 0) -> TensorDict:
    """Every field of a row has the row's number, counted from ``start``."""
    numbers = torch.arange(start, start + n_rows)
    lengths = numbers % 3 * WIDTH
    jagged = torch.nested.nested_tensor_from_jagged(
        numbers.repeat_interleave(lengths),
        torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)]),
    )
    return TensorDict(
        {
            "dense": numbers[:, None].expand(n_rows, WIDTH),
            "jagged": jagged,
            "log": object_column(
                [{"number": number, "text": "x" * WIDTH} for number in numbers.tolist()]
            ),
        },
        [n_rows],
    )


def assert_holds(client: MemoryClient, numbers: dict[str, int]) -> None:
    """The rows are complete, and have these numbers."""
    got = client.get_samples(list(numbers), "p", ["dense", "jagged", "log"])
    assert got["dense"].tolist() == [[number] * WIDTH for number in numbers.values()]
    assert [row.tolist() for row in rows_of(got["jagged"])] == [
        [number] * (number % 3 * WIDTH) for number in numbers.values()
    ]
    assert [row["number"] for row in got.get("log").tolist()] == list(numbers.values())


def numbers(ids: str, start: int = 0) -> dict[str, int]:
    return {sample_id: IDS.index(sample_id) + start for sample_id in ids}


@pytest.mark.parametrize("gone", ["abcdeg", "a", "abdefgh"])
def test_rows_survive_the_clear_of_their_neighbours(client: MemoryClient, gone: str) -> None:
    client.put_samples(IDS, "p", columns(8))
    client.clear_samples(list(gone), "p")
    assert_holds(client, numbers("".join(i for i in IDS if i not in gone)))


def test_rows_survive_the_overwriting_of_their_fields(client: MemoryClient) -> None:
    client.put_samples(IDS, "p", columns(8))
    for turn in range(1, 20):
        rows = IDS[turn % 5 : turn % 5 + 4]
        client.put_samples(rows, "p", columns(4, 100 * turn))
        assert_holds(client, {i: 100 * turn + place for place, i in enumerate(rows)})
    client.put_samples(IDS, "p", columns(8, 50).select("dense", "log"))
    got = client.get_samples(IDS, "p", ["dense", "jagged"])
    assert got["dense"][:, 0].tolist() == list(range(50, 58))
    assert [len(row) for row in rows_of(got["jagged"])][7] == 7 % 3 * WIDTH


Meanwhile = Callable[[MemoryClient], object]


def rewriting(
    monkeypatch: pytest.MonkeyPatch, client: MemoryClient, meanwhile: Meanwhile
) -> list[int]:
    """Run a callback between the read and the end of a compaction; count the compactions."""
    rewrite = engine.compact
    rows: list[int] = []

    def interrupted(columns: Any, live: Any) -> Any:
        fresh = rewrite(columns, live)
        rows.append(sum(map(len, live.values())))
        if len(rows) == 1:
            meanwhile(client)
        return fresh

    monkeypatch.setattr(engine, "compact", interrupted)
    return rows


@pytest.mark.parametrize(
    ("meanwhile", "left"),
    [
        (lambda c: c.clear_samples(["b"], "p"), numbers("a")),
        (lambda c: c.clear_samples(["a", "b"], "p"), {}),
        (lambda c: c.put_samples(["b"], "p", columns(1, 70)), numbers("a") | {"b": 70}),
        (lambda c: c.put_samples(["b", "a"], "p", columns(2, 70)), {"a": 71, "b": 70}),
        (
            lambda c: (c.clear_samples(None, "p"), c.put_samples(["b", "a"], "p", columns(2, 70))),
            {"a": 71, "b": 70},
        ),
        (
            lambda c: (c.put_samples(IDS, "p", columns(8, 40)), c.clear_samples(IDS[1:], "p")),
            {"a": 40},
        ),
    ],
    ids=["clear", "clear of all", "overwrite", "overwrite of all", "put again", "churn"],
)
def test_what_happens_during_a_rewriting_counts(
    client: MemoryClient,
    monkeypatch: pytest.MonkeyPatch,
    meanwhile: Meanwhile,
    left: dict[str, int],
) -> None:
    client.put_samples(IDS, "p", columns(8))
    rewritings = rewriting(monkeypatch, client, meanwhile)
    client.clear_samples(IDS[2:], "p")
    assert rewritings
    for sample_id in set(IDS) - left.keys():
        with pytest.raises(LookupError):
            client.get_samples([sample_id], "p", ["dense"])
    if left:
        assert_holds(client, left)


def test_a_batch_that_goes_meanwhile_does_not_keep_the_next_from_its_turn(
    client: MemoryClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One clear makes three batches due; while one is compacted, the next loses its last row."""
    batches = [[f"{batch}{row}" for row in IDS] for batch in range(3)]
    for batch in batches:
        client.put_samples(batch, "p", columns(8))
    rewritings = rewriting(monkeypatch, client, lambda c: c.clear_samples(["1a"], "p"))
    client.clear_samples([row for batch in batches for row in batch[1:]], "p")
    assert len(rewritings) == 2
    assert_holds(client, {"0a": 0, "2a": 0})


def test_a_plane_may_be_closed_during_a_rewriting(
    client: MemoryClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.put_samples(IDS, "p", columns(8))
    index = client._engine._plane.index  # type: ignore[attr-defined]
    reader = index.locate("p", ["a"], ["dense"])  # a read that is under way keeps the block
    rewritings = rewriting(monkeypatch, client, MemoryClient.close)
    client.clear_samples(IDS[2:], "p")
    assert rewritings
    assert reader


def stored_bytes(client: MemoryClient, ids: list[str], names: list[str]) -> int:
    """Bytes of all blocks that contain the rows, including wasted bytes."""
    index = client._engine._plane.index  # type: ignore[attr-defined]
    blocks = {id(s.block.payload): s.block.payload for s in index.locate("p", ids, names)}
    return sum(column.values.nbytes for columns in blocks.values() for column in columns.values())


@pytest.mark.parametrize("n_kept", [1, 3])
def test_memory_follows_what_is_live(client: MemoryClient, n_kept: int) -> None:
    """Steps that leave one or two rows of each batch must not keep the whole batches."""
    kept = []
    for step in range(8):
        ids = [f"{step}:{place}" for place in range(16)]
        client.put_samples(ids, "p", TensorDict({"x": torch.zeros(16, 2 * WIDTH)}, [16]))
        client.clear_samples(ids[n_kept:], "p")
        kept += ids[:n_kept]
    live = len(kept) * 2 * WIDTH * 4
    assert live <= stored_bytes(client, kept, ["x"]) <= 2 * max(live, 8 * 64 * 2**10)


def test_overwritten_values_give_their_memory_back(client: MemoryClient) -> None:
    """One row of a batch that was not overwritten must not keep the whole batch."""
    ids = [str(place) for place in range(16)]
    old = torch.zeros(16, 8 * WIDTH)
    client.put_samples(ids, "p", TensorDict({"x": old}, [16]))
    client.put_samples(ids[1:], "p", TensorDict({"x": old[1:]}, [15]))
    assert stored_bytes(client, ids[:1], ["x"]) == old[:1].nbytes


def test_a_rewriting_during_which_rows_went_leaves_no_waste(
    client: MemoryClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another caller clears rows during a compaction and starts the next one too late."""
    client.put_samples(IDS, "p", columns(8))
    index = client._engine._plane.index  # type: ignore[attr-defined]
    rows = rewriting(monkeypatch, client, lambda _: index.clear("p", ["b", "c"], ""))
    client.clear_samples(["d", "e", "f", "g", "h"], "p")
    assert rows[0] == 3
    (source,) = index.locate("p", ["a"], ["dense", "jagged", "log"])
    assert source.block.wasted_bytes <= max(source.block.live_bytes, 64 * 2**10)
    assert_holds(client, numbers("a"))


def test_objects_are_written_anew_row_by_row(client: MemoryClient) -> None:
    values = [np.full(5000, index) for index in range(8)]
    client.put_samples(IDS, "p", TensorDict({"log": object_column(values)}, [8]))
    client.clear_samples(IDS[:6], "p")
    got = client.get_samples(["h", "g"], "p", ["log"]).get("log").tolist()
    assert [array[0] for array in got] == [7, 6]
    assert [len(array) for array in got] == [5000, 5000]
