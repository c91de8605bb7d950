"""``BlockClient``: rows of a check become blocks of rows of the plane, and blocks become rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest
import torch

from rlconform.backends.memory import MemoryClient
from rlconform.certify.assertions.expect import ContractViolation, FewerExamples
from rlconform.certify.scenarios.block_client import (
    MOST_BYTES,
    BlockClient,
    CallsAtOnce,
    NoBlocks,
    TooLarge,
)
from rlconform.certify.scenarios.partition import batch_of
from rlconform.certify.threads import BackgroundCall
from rlconform.contract import KVBatchMeta
from rlconform.wire import object_rows
from rlconform.wire.leaves import is_jagged, rows_of

SIZE = 3


@pytest.fixture
def plane() -> Iterator[MemoryClient]:
    client = MemoryClient({})
    yield client
    client.close()


@pytest.fixture
def blocks(plane: MemoryClient) -> BlockClient:
    made = BlockClient(plane, SIZE, CallsAtOnce())
    made.register_partition("p", ["x", "y", "log"], 4, ["train"])
    return made


def put(client: Any, ids: list[str], tags: list[dict[str, Any]] | None = None) -> Any:
    n = len(ids)
    rows = [torch.arange(width) for width in range(1, n + 1)]
    columns = {
        "x": torch.arange(n).reshape(-1, 1),
        "y": torch.nested.nested_tensor(rows, layout=torch.jagged),
        "log": [{"turn": number} for number in range(n)],
    }
    return client.put_samples(ids, "p", batch_of(columns, n), tags)


def test_each_row_is_put_as_a_block_and_read_as_a_row(
    plane: MemoryClient, blocks: BlockClient
) -> None:
    receipt = put(blocks, ["a", "b"])
    assert receipt.sample_ids == ["a", "b"]
    assert plane.get_samples(["a~0", "a~2", "b~1"], "p", ["x"])["x"].tolist() == [[0], [0], [1]]
    batch = blocks.get_samples(["b", "a"], "p", ["x", "y", "log"])
    assert batch.batch_size == (2,)
    assert batch["x"].tolist() == [[1], [0]]
    assert is_jagged(batch["y"])
    assert [row.tolist() for row in rows_of(batch["y"])] == [[0, 1], [0]]
    assert object_rows(batch.get("log"), 2) == [{"turn": 1}, {"turn": 0}]


def test_claims_and_metas_name_rows(blocks: BlockClient) -> None:
    put(blocks, ["a", "b"], [{"input_lengths": 7}, {"input_lengths": 8}])
    meta = blocks.claim_meta("p", "train", required_fields=["x"], batch_size=1, blocking=False)
    assert (meta.sample_ids, meta.tags, meta.sequence_lengths) == (
        ["a"],
        [{"input_lengths": 7}],
        [7],
    )
    assert blocks.get_data(meta)["x"].tolist() == [[0]]
    assert not blocks.check_consumption_status("p", ["train"])
    later = blocks.claim_meta("p", "train", required_fields=["x"], batch_size=9, blocking=False)
    assert later.sample_ids == ["b"]
    assert blocks.check_consumption_status("p", ["train"])


def test_members_of_a_group_become_members_of_several_groups(plane: MemoryClient) -> None:
    blocks = BlockClient(plane, SIZE, CallsAtOnce())
    blocks.register_partition("p", ["x"], 4, ["train"], grpo_group_size=2)
    for member, ready in (("u_g0", []), ("u_g1", ["u_g0", "u_g1"])):
        blocks.put_samples([member], "p", batch_of({"x": torch.zeros(1)}, 1))
        meta = blocks.claim_meta("p", "train", required_fields=["x"], batch_size=2, blocking=False)
        assert sorted(meta.sample_ids) == ready


@pytest.mark.parametrize("ids", [["a"], None], ids=["named", "all"])
def test_a_clear_drops_whole_blocks(
    plane: MemoryClient, blocks: BlockClient, ids: list[str] | None
) -> None:
    put(blocks, ["a", "b"])
    blocks.clear_samples(ids, "p")
    for sample_id in ("a~0", "a~1", "a~2"):
        with pytest.raises(LookupError):
            plane.get_samples([sample_id], "p", ["x"])
    if ids:
        assert blocks.get_samples(["b"], "p", ["x"])["x"].tolist() == [[1]]


def changes_last(plane: MemoryClient) -> None:
    plane.put_samples(["a~2"], "p", batch_of({"x": torch.tensor([[9]])}, 1))


def changes_a_tag(plane: MemoryClient) -> None:
    plane.put_samples(["a~1"], "p", tags=[{"v": True}])


@pytest.mark.parametrize("change", [changes_last, changes_a_tag])
def test_a_row_that_differs_from_its_block_is_a_violation(
    plane: MemoryClient, blocks: BlockClient, change: Callable[[MemoryClient], None]
) -> None:
    put(blocks, ["a"], [{"v": 1}])
    change(plane)
    with pytest.raises(ContractViolation, match="'a' to stay equal"):
        blocks.get_data(
            blocks.claim_meta("p", "train", required_fields=["x"], batch_size=1, blocking=False)
        )


def test_a_part_of_a_block_in_a_full_claim_ends_the_run(
    plane: MemoryClient, blocks: BlockClient
) -> None:
    put(blocks, ["a", "b"])
    plane.claim_meta("p", "train", ["x"], 1, blocking=False)
    with pytest.warns(FewerExamples, match="apart"), pytest.raises(NoBlocks):
        blocks.claim_meta("p", "train", required_fields=["x"], batch_size=1, blocking=False)


def test_a_part_of_a_block_in_a_claim_of_all_is_a_violation(
    plane: MemoryClient, blocks: BlockClient
) -> None:
    put(blocks, ["a", "b"])
    plane.claim_meta("p", "train", ["x"], 1, blocking=False)
    with pytest.raises(ContractViolation, match="all of the 3 rows of 'a'") as violation:
        blocks.claim_meta("p", "train", required_fields=["x"], batch_size=2, blocking=False)
    assert violation.value.leans_on == ("CLAIM-04",)


def test_a_receipt_of_a_part_of_a_block_is_a_violation() -> None:
    class NamesOneRow(MemoryClient):
        def put_samples(self, *args: Any, **kwargs: Any) -> Any:
            return super().put_samples(*args, **kwargs).subset([0])

    with closing(NamesOneRow({})) as client:
        blocks = BlockClient(client, SIZE, CallsAtOnce())
        with pytest.raises(ContractViolation, match="all of the 3"):
            blocks.put_samples(["a"], "p", batch_of({"x": torch.zeros(1)}, 1))


def test_a_put_that_is_large_by_itself_has_no_blocks(blocks: BlockClient) -> None:
    large = batch_of({"x": torch.zeros(1, MOST_BYTES, dtype=torch.uint8)}, 1)
    with pytest.raises(TooLarge, match=r"pytest\.mark\.large"):
        blocks.put_samples(["a"], "p", large)


def test_what_the_plane_refuses_is_refused(blocks: BlockClient) -> None:
    with pytest.raises(LookupError):
        blocks.get_samples(["unknown"], "p", ["x"])
    with pytest.raises(LookupError):
        blocks.get_data(KVBatchMeta("p", None, ["unknown"], fields=["x"]))


@pytest.fixture
def beside_a_call(blocks: BlockClient) -> BlockClient:
    """The client of a check in which another one's claim has waited while this one put a row."""
    waiting = BackgroundCall(
        lambda: blocks.claim_meta("p", "train", required_fields=["y"], batch_size=1, timeout_s=9),
        "a claim that waits",
    )
    assert not waiting.returned_within(0.1)
    put(blocks, ["b"])
    assert waiting.result(9).sample_ids == ["b"]
    return blocks


def test_after_calls_at_once_a_plane_may_overwrite_and_claim_rows_one_by_one(
    plane: MemoryClient, beside_a_call: BlockClient
) -> None:
    put(beside_a_call, ["a"])
    changes_last(plane)
    with pytest.warns(FewerExamples, match="apart"), pytest.raises(NoBlocks):
        beside_a_call.get_samples(["a"], "p", ["x"])
    plane.claim_meta("p", "train", ["x"], 1, blocking=False)
    with pytest.warns(FewerExamples, match="apart"), pytest.raises(NoBlocks):
        beside_a_call.claim_meta("p", "train", required_fields=["x"], batch_size=2, blocking=False)


def test_the_end_of_a_run_in_blocks_is_no_error_of_the_plane_in_a_thread(
    plane: MemoryClient, blocks: BlockClient
) -> None:
    put(blocks, ["a"])
    plane.claim_meta("p", "train", ["x"], 1, blocking=False)
    put(blocks, ["b"])

    def claim() -> object:
        return blocks.claim_meta("p", "train", required_fields=["x"], batch_size=1, blocking=False)

    with pytest.warns(FewerExamples, match="apart"), pytest.raises(NoBlocks):
        BackgroundCall(claim, "a claim").result(9)
