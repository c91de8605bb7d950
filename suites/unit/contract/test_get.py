"""GET: a read returns the requested rows and fields in the requested order, or raises."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from rlconform.certify.assertions.expect import (
    ContractViolation,
    expect,
    expect_column,
    expect_equal,
    expect_lookup_error,
    expect_rejection,
)
from rlconform.certify.plugin.markers import requirement
from rlconform.certify.recording.snapshot import Snapshot
from rlconform.certify.scenarios.labeled_rows import labeled_rows
from rlconform.certify.scenarios.large_step import STEP_IDS, put_large_step
from rlconform.certify.scenarios.partition import PartitionUnderTest, expect_ids
from rlconform.certify.scenarios.read_ways import Way, either_way
from rlconform.contract import KVBatchMeta, Target

IDS = ["u0_g0", "u0_g1", "u1_g0", "u1_g1"]


def meta_of(part: PartitionUnderTest, ids: list[str], fields: list[str] | None) -> KVBatchMeta:
    return KVBatchMeta(partition_id=part.id, task_name=None, sample_ids=ids, fields=fields)


@requirement("GET-01")
@pytest.mark.parametrize("order", [(3, 2, 1, 0), (1, 3, 0, 2), (2,), (0, 2)], ids=str)
def test_rows_are_returned_in_the_order_asked(
    part: PartitionUnderTest, order: tuple[int, ...]
) -> None:
    part.put_labeled([IDS[2], IDS[0]])
    part.put_labeled([IDS[3], IDS[1]])
    asked = [IDS[i] for i in order]
    part.expect_labeled(asked)
    part.expect_rows_by_meta(asked, x=labeled_rows(part.id, asked, "x"))


@requirement("GET-01")
def test_many_rows_are_returned_in_the_order_asked(
    new_partition: Callable[..., PartitionUnderTest],
) -> None:
    part = new_partition(num_samples=257)
    ids = [f"r{i}" for i in range(257)]
    shuffled = [ids[i] for i in torch.randperm(257, generator=torch.Generator().manual_seed(0))]
    part.put(ids, x=torch.nested.nested_tensor(
        labeled_rows(part.id, ids, "x"), layout=torch.jagged), y=torch.arange(257))  # fmt: skip
    part.expect_labeled(shuffled)
    part.expect_rows(shuffled, y=[torch.tensor(int(i[1:])) for i in shuffled])


@requirement("GET-01")
def test_rows_of_a_large_step_are_returned_in_the_order_asked(
    new_partition: Callable[..., PartitionUnderTest],
) -> None:
    step = put_large_step(new_partition)
    order = torch.randperm(len(STEP_IDS), generator=torch.Generator().manual_seed(0))
    asked = [STEP_IDS[i] for i in order]
    step.expect_rows(asked, x=list(order))
    step.expect_rows_by_meta(asked, x=list(order))


@requirement("GET-02")
@either_way
def test_a_repeated_id_repeats_or_is_rejected(part: PartitionUnderTest, read: Way) -> None:
    part.put_labeled(IDS)
    asked = [IDS[1], IDS[0], IDS[1], IDS[1]]
    try:
        batch = read(part, asked)
    except ContractViolation:
        raise
    except Exception:  # noqa: BLE001 - a rejection of any type is right
        return
    expect_column(batch, "x", labeled_rows(part.id, asked, "x"))


@requirement("GET-02")
@either_way
def test_repeated_rows_of_different_lengths_repeat_or_are_rejected(
    part: PartitionUnderTest, read: Way
) -> None:
    rows = [torch.arange(n) for n in (2, 1, 3)]
    part.put(IDS[:3], x=torch.nested.nested_tensor(rows, layout=torch.jagged))
    try:
        batch = read(part, [IDS[2], IDS[0], IDS[2]])
    except ContractViolation:
        raise
    except Exception:  # noqa: BLE001 - a rejection of any type is right
        return
    expect_column(batch, "x", [rows[2], rows[0], rows[2]])


@requirement("GET-03")
@pytest.mark.parametrize("asked", [["x"], ["z", "x"], ["x", "y", "z"]], ids=str)
def test_only_the_fields_asked_for_are_returned(part: PartitionUnderTest, asked: list[str]) -> None:
    part.put_labeled(IDS, "x", "y", "z")
    got = sorted(map(str, part.get(IDS, *asked).keys()))
    expect_equal(got, sorted(asked), "fields of the result")


@requirement("GET-04")
@pytest.mark.parametrize("asked", [["u0_g0", "ghost"], ["ghost"], ["ghost", "u0_g0"]], ids="-".join)
def test_an_unknown_id_raises(part: PartitionUnderTest, asked: list[str]) -> None:
    part.put_labeled(IDS)
    expect_lookup_error(lambda: part.get(asked, "x"), "an id that was never put")


@requirement("GET-04")
def test_one_unknown_id_among_many_raises(part: PartitionUnderTest) -> None:
    ids = [f"r{i}" for i in range(48)]
    part.put_labeled(ids)
    asked = [*ids[:30], "ghost", *ids[30:]]
    expect_lookup_error(lambda: part.get(asked, "x"), "one unknown id among 48 known ones")
    expect_lookup_error(
        lambda: part.get_data(meta_of(part, asked, ["x"])), "a meta with one unknown id among 48"
    )
    part.expect_labeled(ids)


@requirement("GET-05")
@pytest.mark.parametrize(
    ("ids", "fields"),
    [(IDS, ["y"]), (IDS, ["x", "y"]), (IDS[2:], ["y"]), (IDS, ["nope"]), (IDS, ["x", "nope"])],
    ids=["for_some", "beside_another", "for_none", "unknown", "unknown_beside_another"],
)
def test_a_field_not_produced_for_every_id_raises(
    part: PartitionUnderTest, ids: list[str], fields: list[str]
) -> None:
    part.put_labeled(IDS, "x")
    part.put_labeled(IDS[:2], "y")
    expect_lookup_error(lambda: part.get(ids, *fields), "a field not produced for every id")
    expect_lookup_error(
        lambda: part.get_data(meta_of(part, ids, ["x"]), fields), "such a field, asked by a meta"
    )


@requirement("GET-06")
@either_way
@pytest.mark.parametrize("asked", [IDS[:2], IDS, IDS[1:3]], ids=["alone", "all", "some"])
def test_a_cleared_row_raises(part: PartitionUnderTest, asked: list[str], read: Way) -> None:
    part.put_labeled(IDS)
    part.clear(IDS[:2])
    expect_lookup_error(lambda: read(part, asked), "a row that was cleared")
    part.expect_labeled(IDS[2:])


@requirement("GET-07")
def test_no_ids_return_an_empty_batch(part: PartitionUnderTest) -> None:
    part.put_labeled(IDS)
    expect_equal(tuple(part.get([], "x").batch_size), (0,), "batch size")
    of_meta = part.get_data(meta_of(part, [], ["x"]))
    expect_equal(tuple(of_meta.batch_size), (0,), "batch size of get_data of an empty shard")


@requirement("GET-08")
def test_reading_moves_no_cursor(part: PartitionUnderTest) -> None:
    part.put_labeled(IDS)
    part.get(IDS, "x")
    part.get(IDS[:1], "x")
    expect(not part.consumed("train"), "rows that were only read to be unconsumed", "consumed")
    expect_ids(part.claim("train"), IDS, "rows still claimable after reads")


@requirement("GET-09")
@pytest.mark.parametrize("count", [1, 2, 4])
def test_batch_size_is_the_number_of_rows(part: PartitionUnderTest, count: int) -> None:
    part.put_labeled(IDS)
    part.put(IDS, y=torch.zeros(4, 3), z=torch.nested.nested_tensor(
        [torch.zeros(n) for n in (1, 0, 2, 5)], layout=torch.jagged))  # fmt: skip
    for fields in (["x", "y", "z"], ["y"], ["z"]):
        batch = part.get(IDS[:count], *fields)
        expect_equal(tuple(batch.batch_size), (count,), f"batch size of {' and '.join(fields)}")
        batch = part.get_data(meta_of(part, IDS[:count], fields))
        expect_equal(tuple(batch.batch_size), (count,), "batch size of the same by get_data")


@requirement("GET-12")
def test_empty_select_fields_are_rejected(part: PartitionUnderTest) -> None:
    part.put_labeled(IDS)
    expect_rejection(lambda: part.get(IDS), "a read of no fields", ValueError)
    meta = meta_of(part, IDS, ["x"])
    expect_rejection(
        lambda: part.get_data(meta, []),
        "get_data of no fields, with a meta that names x",
        ValueError,
    )


@requirement("GET-13")
def test_no_later_call_changes_a_result(part: PartitionUnderTest, target: Target) -> None:
    tags = [{"row": n, "input_lengths": n} for n, _ in enumerate(IDS)]
    columns = {"y": torch.nested.nested_tensor([torch.arange(n) for n in (1, 3, 2, 4)],
                                               layout=torch.jagged)}  # fmt: skip
    if target.declares("objects"):
        columns["z"] = [[{"n": n}] for n, _ in enumerate(IDS)]  # type: ignore[assignment]
    receipt = part.put_labeled(IDS, tags=tags)
    part.put(IDS, **columns)
    results = {
        "the receipt of a put": receipt,
        "a claim": part.claim("train", batch_size=2),
        "a second claim": part.claim("train"),
        "a read": part.get(IDS, "x", *columns),
        "a read by a meta": part.get_data(meta_of(part, IDS[1:3], ["x", "y"])),
    }
    before = {name: Snapshot(result) for name, result in results.items()}
    part.put_labeled(IDS[::-1], tags=[{"row": 9, "new": True}] * 4, version=1)
    part.claim("prev_lp", batch_size=3)
    for _ in range(70):  # more than a plane has buffers for results
        part.get(IDS[::-1], "x", *columns)
    part.get_data(results["a claim"])
    part.clear(IDS)
    part.put_labeled(["other"], tags=[{"row": 5}])
    part.claim("train")
    for name, snapshot in before.items():
        expect(not snapshot.changed(), f"{name} as returned, after later calls", results[name])


#: What a caller does to the list of ids that it got.
CHANGES: dict[str, Callable[[list[str]], object]] = {
    "shortened": lambda ids: ids.pop(),
    "emptied": lambda ids: ids.clear(),
    "reversed": lambda ids: ids.reverse(),
    "lengthened": lambda ids: ids.append("other"),
}


@requirement("GET-13", changes_results=True)
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize("of", ["put", "claim"])
def test_changing_the_ids_of_a_meta_changes_nothing_stored(
    part: PartitionUnderTest, of: str, change: Callable[[list[str]], object]
) -> None:
    """A caller narrows a meta to the rows that it keeps; a plane may have kept the same list."""

    def put_and_change() -> None:
        receipt = part.put_labeled(IDS, tags=[{"row": n} for n, _ in enumerate(IDS)])
        change((receipt if of == "put" else part.claim("prev_lp")).sample_ids)

    put_and_change()
    part.clear(None)
    part.expect_absent(IDS)
    part.register()
    put_and_change()
    part.put_labeled(IDS[1:], "y")
    part.expect_labeled(IDS[::-1])
    part.expect_labeled(IDS[1:], "y")
    expect_ids(part.claim("train"), IDS, "rows claimed after the change")
    part.clear(IDS[:1])
    part.expect_labeled(IDS[1:])
    part.clear(None)
    part.expect_absent(IDS)


@requirement("GET-13", changes_results=True)
def test_changing_a_meta_changes_no_other(part: PartitionUnderTest) -> None:
    part.put_labeled(IDS, tags=[{"row": n} for n, _ in enumerate(IDS)])
    first = part.claim("train", batch_size=2)
    receipt = part.put_labeled(IDS)
    kept = Snapshot(receipt)
    for values in (first.sample_ids, first.fields, first.tags):
        if values is not None:
            values.clear()
    extra = getattr(first, "extra_info", None)
    if extra is not None:
        extra["step"] = 7
    expect(not kept.changed(), "a receipt as returned, after a claim's meta was changed", receipt)
    for meta in (part.claim("train"), part.claim("prev_lp")):
        expect(bool(meta.sample_ids), "rows of a claim after another's meta was changed", meta)
        tags = [{"row": IDS.index(i)} for i in meta.sample_ids]
        expect_equal(meta.tags, tags, "tags after another claim's meta was changed:")
        info = getattr(meta, "extra_info", None) or {}
        expect("step" not in info, "extra_info of its own on every meta", info)


@requirement("GET-13", changes_results=True)
def test_changing_an_empty_meta_changes_no_other(part: PartitionUnderTest) -> None:
    first = part.claim("train")
    first.sample_ids.append("mine")  # as a trainer that collects claims into one meta
    if first.tags is not None:
        first.tags.append({"mine": 1})
    extra = getattr(first, "extra_info", None)
    if extra is not None:
        extra["mine"] = 1
    again = part.claim("train")
    expect_equal(again.sample_ids, [], "ids of a second empty claim")
    expect(not again.tags, "no tags on a second empty claim", again.tags)
    expect_equal(getattr(again, "extra_info", None) or {}, {}, "extra_info of a second empty claim")


@requirement("GET-02")
@pytest.mark.parametrize("distinct", [200, 300, 1000, 5000])
def test_a_repeated_id_among_many_repeats_or_is_rejected(
    new_partition: Callable[..., PartitionUnderTest], distinct: int
) -> None:
    part, ids = new_partition(num_samples=distinct), [f"r{n}" for n in range(distinct)]
    part.put(ids, x=torch.arange(distinct))
    order = [distinct - 1, *range(distinct), 0, distinct // 2, 150, 150]
    try:
        batch = part.get([ids[n] for n in order], "x")
    except ContractViolation:
        raise
    except Exception:  # noqa: BLE001 - a rejection of any type is right
        return
    expect_column(batch, "x", [torch.tensor(n) for n in order])


@requirement("GET-05")
def test_no_field_appears_beside_a_jagged_one(part: PartitionUnderTest) -> None:
    rows = [torch.arange(n + 1) for n, _ in enumerate(IDS)]
    part.put(IDS, x=torch.nested.nested_tensor(rows, layout=torch.jagged))
    for hidden in ("x_lengths", "x_offsets", "x_values", "x_shape", "x_dtype", "x.lengths"):
        expect_lookup_error(
            lambda name=hidden: part.get(IDS, name), f"a field {hidden!r} that nobody put"
        )
        part.expect_absent(IDS[:1], hidden)
