"""LIFE: clients open, close, are shared by threads, and survive malformed calls."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from tensordict import TensorDict

from rlconform.certify.assertions.expect import (
    expect,
    expect_equal,
    expect_rejection,
    is_rejected,
    leaning_on,
)
from rlconform.certify.assertions.malformed import expect_harmless
from rlconform.certify.concurrency.checkers.calls import hung, refused
from rlconform.certify.concurrency.checkers.claims import phantoms
from rlconform.certify.concurrency.checkers.reads import stale_reads, unwritten, wrong_rows
from rlconform.certify.concurrency.checkers.torn_reads import torn
from rlconform.certify.concurrency.explain import check_history
from rlconform.certify.concurrency.workload_runner import WorkloadRunner
from rlconform.certify.concurrency.workloads import Claimer, Overwriter, Reader
from rlconform.certify.plugin.markers import requirement
from rlconform.certify.plugin.plane_session import PlaneSession
from rlconform.certify.recording.snapshot import Snapshot
from rlconform.certify.scenarios.partition import (
    PartitionUnderTest,
    batch_of,
    expect_ids,
    expect_unreadable,
)
from rlconform.certify.threads import BackgroundCall, run_concurrently
from rlconform.contract import DataPlaneClient, KVBatchMeta, Target
from rlconform.wire import stack_or_nest

IDS = ["u0_g0", "u0_g1", "u1_g0"]


@requirement("LIFE-05", race=True)
def test_threads_share_a_client(part: PartitionUnderTest) -> None:
    rounds = 10

    def work(thread: int) -> None:
        for n in range(rounds):
            ids = [f"t{thread}_{k}" for k in range(3)]
            part.put_labeled(ids, "x", "y", version=n)
            part.expect_labeled(ids[::-1], "x", "y", version=n)
            if n % 3 == 2:
                part.clear(ids[:1])
                part.put_labeled(ids[:1], "x", "y", version=n)

    run_concurrently([lambda t=t: work(t) for t in range(8)], part.timeouts.check, "thread")
    ids = [f"t{t}_{k}" for t in range(8) for k in range(3)]
    part.expect_labeled(ids, "x", "y", version=rounds - 1)
    expect_ids(part.claim("train"), ids, "rows of all threads")


DTYPES = (torch.uint8, torch.int16, torch.int64, torch.bfloat16, torch.float64)


@requirement("LIFE-05", race=True)
def test_threads_put_and_read_different_dtypes_at_once(
    threads: WorkloadRunner, part: PartitionUnderTest
) -> None:
    part.register(fields=[str(dtype).removeprefix("torch.") for dtype in DTYPES])
    workloads = []
    for dtype in DTYPES:
        field = str(dtype).removeprefix("torch.")
        ids = tuple(f"{field}_{k}" for k in range(3))
        workloads.append(Overwriter(0.5, ids, (field,), ragged=True, dtypes={field: dtype}))
    history = threads.run(*workloads, Claimer(fields=("int64",), idle_s=0.001))
    check_history(
        history, "shared_client", wrong_rows, unwritten, stale_reads, phantoms, refused, hung
    )


@requirement("LIFE-05", race=True)
def test_threads_read_all_fields_of_one_put(
    threads: WorkloadRunner, part: PartitionUnderTest
) -> None:
    fields = tuple(f"f{n}" for n in range(16))
    part.register(fields=fields)
    reader = Reader(("r0", "r1"), fields)
    history = threads.run(Overwriter(0.5, ("r0", "r1"), fields), reader, reader)
    check_history(history, "overwrite", torn, stale_reads, wrong_rows, refused, hung)


def _batch() -> TensorDict:
    return TensorDict({"x": torch.zeros(3, 2)}, batch_size=[3])


MALFORMED: dict[str, tuple[str, dict[str, Any]]] = {
    "claim_batch_size_none": ("claim_meta", {"batch_size": None}),
    "claim_batch_size_negative": ("claim_meta", {"batch_size": -1}),
    "claim_batch_size_text": ("claim_meta", {"batch_size": "4"}),
    "claim_no_fields": ("claim_meta", {"required_fields": []}),
    "claim_fields_none": ("claim_meta", {"required_fields": None}),
    "claim_task_none": ("claim_meta", {"task_name": None}),
    "put_ids_none": ("put_samples", {"sample_ids": None}),
    "put_ids_not_text": ("put_samples", {"sample_ids": [1, 2, 3]}),
    "put_fields_not_a_batch": ("put_samples", {"fields": 42}),
    "put_tags_not_dicts": ("put_samples", {"tags": [1, 2, 3]}),
    "get_ids_none": ("get_samples", {"sample_ids": None}),
    "get_fields_none": ("get_samples", {"select_fields": None}),
    "get_data_meta_none": ("get_data", {"meta": None}),
    "status_tasks_none": ("check_consumption_status", {"task_names": None}),
    "clear_ids_a_number": ("clear_samples", {"sample_ids": 42}),
    "register_fields_none": ("register_partition", {"fields": None}),
}

#: A row with tags but no field, which no claim may return.
TAGS_ONLY = "tags_only"

#: Malformed calls that a plane must refuse, with the results that it may return instead of an
#: error. A plane may interpret all other malformed calls, such as "4" as 4 and None as no fields,
#: if they affect nothing else.
HARMFUL: dict[str, Callable[[Any], bool]] = {
    "claim_no_fields": lambda meta: TAGS_ONLY not in meta.sample_ids,
    "claim_fields_none": lambda meta: TAGS_ONLY not in meta.sample_ids,
    "claim_batch_size_negative": lambda meta: not meta.sample_ids,
    "put_fields_not_a_batch": lambda _receipt: False,
    "put_tags_not_dicts": lambda _receipt: False,
    "get_data_meta_none": lambda _batch: False,
    "status_tasks_none": lambda consumed: not consumed,
}


VALID_CALLS: dict[str, dict[str, Any]] = {
    "claim_meta": {
        "task_name": "train",
        "required_fields": ["x"],
        "batch_size": 4,
        "blocking": False,
    },
    "put_samples": {"sample_ids": IDS, "fields": _batch()},
    "get_samples": {"sample_ids": IDS, "select_fields": ["x"]},
    "get_data": {"select_fields": ["x"]},
    "check_consumption_status": {"task_names": ["train"]},
    "clear_samples": {"sample_ids": IDS},
    "register_partition": {"fields": ["x"], "num_samples": 4, "consumer_tasks": ["train"]},
}


def _valid_call(part: PartitionUnderTest, method: str) -> dict[str, Any]:
    if method == "get_data":
        return {"meta": KVBatchMeta(part.id, None, IDS)} | VALID_CALLS[method]
    return {"partition_id": part.id} | VALID_CALLS[method]


@requirement("LIFE-07")
@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_call_changes_nothing_else(
    client: DataPlaneClient, part: PartitionUnderTest, name: str
) -> None:
    method, wrong = MALFORMED[name]
    if method == "register_partition":  # the plane decides what this does to existing rows
        wrong = wrong | {"partition_id": f"{part.id}-other"}
    part.put_labeled(["other"])
    part.put([TAGS_ONLY], [{"std": 0.0}])
    arguments = _valid_call(part, method) | wrong
    expect_harmless(
        lambda: getattr(client, method)(**arguments),
        f"{method} with {wrong}",
        part.timeouts.operation,
        HARMFUL.get(name, lambda _result: True),
    )
    part.clear([TAGS_ONLY])
    after = BackgroundCall(lambda: part.expect_labeled(["other"]), "a read after it")
    after.result(part.timeouts.operation)
    after = BackgroundCall(lambda: part.put_labeled(["later"]), "a put after it")
    after.result(part.timeouts.operation)
    part.expect_labeled(["other", "later"])
    after = BackgroundCall(lambda: part.claim_all("prev_lp"), "claims after it")
    claimed = after.result(part.timeouts.operation)
    put_as_text = ["1", "2", "3"] if name == "put_ids_not_text" else []
    unexpected = sorted(set(claimed) - {"other", "later", *put_as_text})
    missing = sorted({"other", "later"} - set(claimed))
    expect(not missing, "every other row to be claimable after it", f"no {missing}")
    with leaning_on("PUT-16"):  # a refused put must store nothing
        expect(not unexpected, "no row of a malformed call to be claimable", unexpected)
        expect(part.consumed("prev_lp"), "every row consumed after it", "another row counted")


@requirement("LIFE-07")
def test_a_text_in_place_of_ids_is_not_read_letter_by_letter(part: PartitionUnderTest) -> None:
    part.put_labeled(["1", "2", "12"])
    expect_harmless(  # a plane may refuse the text, or take it for one id
        lambda: part.client.clear_samples(sample_ids="12", partition_id=part.id),  # type: ignore[arg-type]
        "clear_samples with a text in place of ids",
        part.timeouts.operation,
        lambda _result: True,
    )
    part.expect_labeled(["1", "2"])


@requirement("LIFE-08")
def test_registering_makes_no_row_visible(
    new_partition: Callable[..., PartitionUnderTest],
) -> None:
    part = new_partition(fields=["x", "y"])
    expect_equal(part.claim("train", ["x"]).sample_ids, [], "rows after registering")
    part.put_labeled(["real"], "x", "y")
    expect_ids(part.claim("train", ["x"]), ["real"], "rows after one put")
    expect(part.consumed("train"), "the one row to be all there is", "another row counted")


@requirement("LIFE-08")
def test_registering_repeatedly_makes_no_row_visible(part: PartitionUnderTest) -> None:
    rounds = 40

    def register() -> None:
        for _ in range(rounds):
            part.register()

    registrar = BackgroundCall(register, "the registrar")
    while not registrar.finished.is_set():
        for field in ("x", "y"):
            got = part.claim("train", [field], 1).sample_ids
            expect(not got, "no row in a partition in which nothing was put", got)
        registrar.wait_briefly()
    registrar.result(part.timeouts.operation)


# The checks below close the plane, so they run last, and each is followed by a new plane.


@requirement("LIFE-01", ends_plane=True)
def test_closing_twice_is_no_error(client: DataPlaneClient) -> None:
    client.close()
    client.close()


@requirement("LIFE-01", ends_plane=True)
def test_closing_an_old_client_again_leaves_a_new_plane_alone(
    plane: PlaneSession, part: PartitionUnderTest
) -> None:
    old = part.client
    old.close()
    plane.renew()
    new = PartitionUnderTest(plane.recorded(part.client.recording), part.id, part.timeouts)
    new.register()
    new.put_labeled(IDS)
    old.close()  # as a finalizer does
    new.expect_labeled(IDS)
    expect_ids(new.claim("train"), IDS, "rows claimable after an old client was closed again")


@requirement("LIFE-03", ends_plane=True)
def test_calls_after_close_are_rejected(client: DataPlaneClient, part: PartitionUnderTest) -> None:
    part.put_labeled(IDS)
    client.close()
    for method in VALID_CALLS:
        arguments = _valid_call(part, method)
        call = BackgroundCall(lambda: getattr(client, method)(**arguments), f"{method} after close")  # noqa: B023
        expect_rejection(lambda: call.result(part.timeouts.operation), f"{method} after close")  # noqa: B023


@requirement("LIFE-04", ends_plane=True)
def test_a_new_plane_holds_nothing_of_the_old(
    plane: PlaneSession, part: PartitionUnderTest
) -> None:
    part.put_labeled(IDS, tags=[{"old": 1}] * 3)
    part.put(IDS, y=torch.ones(3, 2))
    part.claim("train")
    plane.renew()
    new = PartitionUnderTest(plane.recorded(part.client.recording), part.id, part.timeouts)
    new.register()
    for sample_id in IDS:
        expect_unreadable(partial(new.get, [sample_id], "x"), sample_id, "x")
    expect_equal(new.claim_all(), [], "rows claimable in a new plane")
    new.put(IDS, y=torch.arange(3))  # the old plane had floats in this field
    new.put_labeled(IDS, version=1)
    new.expect_labeled(IDS, version=1)
    meta = new.claim("train")
    expect_ids(meta, IDS, "rows of the new plane")
    expect(not any(meta.tags or []), "no tags of the old plane", meta.tags)
    new.expect_rows(IDS, y=list(torch.arange(3)))


# -- LIFE-09: arguments are the caller's ----------------------------------------------------------


def _arguments(part: PartitionUnderTest, target: Target) -> dict[str, dict[str, Any]]:
    """Return arguments for every method, by method, with columns and tags of every kind."""
    rows = [torch.arange(n + 1) for n, _ in enumerate(IDS)]
    columns: dict[str, Any] = {"x": torch.ones(3, 2), "y": stack_or_nest(rows)}
    if target.declares("objects"):
        columns["log"] = [[{"role": "user", "turns": [n]}] for n, _ in enumerate(IDS)]
    meta = KVBatchMeta(part.id, "train", list(IDS), ["x", "y"], [1, 2, 3], {"step": 1}, [{}] * 3)
    rows_and_partition = {"sample_ids": list(IDS), "partition_id": part.id}
    return {
        "register_partition": {
            "partition_id": part.id,
            "fields": list(columns),
            "num_samples": 4,
            "consumer_tasks": ["train", "prev_lp"],
        },
        "put_samples": rows_and_partition
        | {
            "fields": batch_of(columns, 3),
            "tags": [{"input_lengths": n, "mode": "train"} for n, _ in enumerate(IDS)],
        },
        "get_samples": rows_and_partition | {"select_fields": ["y", "x"]},
        "get_data": {"meta": meta, "select_fields": ["y"]},
        "claim_meta": {"partition_id": part.id} | VALID_CALLS["claim_meta"],
        "check_consumption_status": {"partition_id": part.id, "task_names": ["train", "prev_lp"]},
        "clear_samples": rows_and_partition | {"sample_ids": [*IDS, "ghost"]},
    }


@requirement("LIFE-09")
def test_no_call_changes_its_arguments(
    client: DataPlaneClient, part: PartitionUnderTest, target: Target
) -> None:
    for method, arguments in _arguments(part, target).items():
        before = Snapshot(arguments)
        getattr(client, method)(**arguments)
        expect(not before.changed(), f"the arguments of {method} as before", arguments)


@requirement("LIFE-09")
def test_no_call_that_fails_changes_its_arguments(
    client: DataPlaneClient, part: PartitionUnderTest, target: Target
) -> None:
    arguments = _arguments(part, target)
    part.put_labeled(IDS[:1])
    arguments["put_samples"]["tags"].pop()  # too few: PUT-15 asks for an error
    nested = TensorDict({"deep": torch.zeros(3)}, batch_size=[3])  # no column: PUT-25
    arguments["put_nested"] = arguments["put_samples"] | {"fields": _batch().set("y", nested)}
    arguments["get_samples"]["sample_ids"].append("ghost")
    arguments["get_data"]["meta"].sample_ids.append("ghost")
    failing = dict.fromkeys(("put_samples", "put_nested"), client.put_samples)
    failing |= {"get_samples": client.get_samples, "get_data": client.get_data}
    for name, call in failing.items():
        before = Snapshot(arguments[name])
        is_rejected(lambda: call(**arguments[name]))  # noqa: B023
        expect(
            not before.changed(), f"the arguments of a {name} that fails as before", arguments[name]
        )


@requirement("LIFE-09")
def test_a_put_whose_dtype_is_refused_does_not_change_its_batch(
    client: DataPlaneClient, part: PartitionUnderTest, target: Target
) -> None:
    part.put_labeled(["other"], "x")
    arguments = _arguments(part, target)["put_samples"]
    arguments["fields"]["x"] = torch.ones(3, 2, dtype=torch.bfloat16)  # may be refused: PUT-23
    before = Snapshot(arguments)
    is_rejected(lambda: client.put_samples(**arguments))
    expect(not before.changed(), "the arguments of the put as before", arguments)
