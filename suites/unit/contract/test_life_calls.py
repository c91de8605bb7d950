"""LIFE-07, LIFE-09: a malformed call hurts only its caller, and no call changes its arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tensordict import TensorDict

from rlconform.certify.assertions.expect import (
    expect,
    is_rejected,
    leaning_on,
)
from rlconform.certify.assertions.malformed import expect_harmless
from rlconform.certify.plugin.markers import requirement
from rlconform.certify.recording.snapshot import Snapshot
from rlconform.certify.scenarios.partition import (
    PartitionUnderTest,
    batch_of,
)
from rlconform.certify.scenarios.repeated_calls import Call, check_many
from rlconform.certify.scenarios.valid_calls import VALID_CALLS, batch, valid_call
from rlconform.certify.threads import BackgroundCall
from rlconform.contract import DataPlaneClient, KVBatchMeta, Target
from rlconform.wire import stack_or_nest

IDS = ["u0_g0", "u0_g1", "u1_g0"]


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
    arguments = valid_call(part, method) | wrong
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
@pytest.mark.parametrize("locked", [False, True], ids=["batch_unlocked", "batch_locked"])
def test_no_call_changes_its_arguments(
    client: DataPlaneClient, part: PartitionUnderTest, target: Target, locked: bool
) -> None:
    all_arguments = _arguments(part, target)
    if locked:  # as TensorDicts are that are memory-mapped, shared or in a cache
        all_arguments["put_samples"]["fields"].lock_()
    for method, arguments in all_arguments.items():
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
    arguments["put_nested"] = arguments["put_samples"] | {"fields": batch().set("y", nested)}
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


#: Calls that a plane must refuse.
REFUSED: dict[str, Call] = {
    "reads_of_unknown_rows": lambda part: part.get([*IDS, "ghost"], "x"),
    "reads_of_unknown_fields": lambda part: part.get(IDS, "w"),
    "too_few_tags": lambda part: part.put(IDS, [{}], x=torch.ones(3)),
    "too_few_rows": lambda part: part.put([*IDS, "more"], x=torch.ones(3)),
    "claims_that_time_out": lambda part: part.claim(
        "train", batch_size=3, blocking=True, timeout_s=0.001
    ),
}


@requirement("LIFE-07", leans_on=("CLAIM-06", "PUT-16", "GET-04"), scattered=False)
@pytest.mark.parametrize("kind", REFUSED)
def test_very_many_refused_calls_change_nothing(part: PartitionUnderTest, kind: str) -> None:
    check_many(part, lambda part: is_rejected(lambda: REFUSED[kind](part)))
