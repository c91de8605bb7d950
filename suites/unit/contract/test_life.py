"""LIFE-01 to 05, LIFE-08: clients open, close, and are shared by threads."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch

from rlconform.certify.assertions.expect import (
    expect,
    expect_equal,
    expect_rejection,
)
from rlconform.certify.concurrency.checkers.calls import hung, refused
from rlconform.certify.concurrency.checkers.claims import phantoms
from rlconform.certify.concurrency.checkers.reads import stale_reads, unwritten, wrong_rows
from rlconform.certify.concurrency.checkers.torn_reads import torn
from rlconform.certify.concurrency.explain import check_history
from rlconform.certify.concurrency.workload_runner import WorkloadRunner
from rlconform.certify.concurrency.workloads import Claimer, Overwriter, Reader
from rlconform.certify.plugin.markers import requirement
from rlconform.certify.plugin.plane_session import PlaneSession
from rlconform.certify.scenarios.partition import (
    PartitionUnderTest,
    expect_ids,
    expect_unreadable,
)
from rlconform.certify.scenarios.valid_calls import VALID_CALLS, valid_call
from rlconform.certify.threads import BackgroundCall, run_concurrently
from rlconform.contract import DataPlaneClient

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
        arguments = valid_call(part, method)
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
