"""``StepBatch`` reports wrong rows as violations of the plane, in any layout."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from tensordict import TensorDict

from rlconform.certify.assertions.expect import ContractViolation
from rlconform.certify.scenarios.codec_round_trip import (
    StepBatch,
    expect_logs_rebuilt,
    padded,
    write_with_logs,
)
from rlconform.certify.scenarios.partition import PartitionUnderTest
from rlconform.certify.scenarios.rollouts import PAD_TOKEN_ID, SyntheticRollout, rollout_batch
from rlconform.certify.target import open_target
from rlconform.contract import Target, Timeouts
from rlconform.contract.fields import INPUT_IDS
from rlconform.wire import object_column, rows_of, stack_or_nest
from rlconform.wire.leaves import is_jagged

Change = Callable[[Any], Any]
FIELDS = ["input_ids", "generation_logprobs", "token_mask", "total_reward", "pixel_values"]
PADS = {"input_ids": PAD_TOKEN_ID, "generation_logprobs": -1.0, "token_mask": 7}


class Changing:
    """The memory plane, with each column changed before it is returned."""

    def __init__(self, change: Change, takes_objects: bool = True) -> None:
        self._plane: Any = open_target("memory", {}, bootstrap=True)
        self._change = change
        self._takes_objects = takes_objects

    def __getattr__(self, name: str) -> Any:
        return getattr(self._plane, name)

    def put_samples(self, fields: TensorDict, **call: Any) -> Any:
        leaves = (fields.get(name) for name in fields.keys())  # noqa: SIM118 - a TensorDict
        if not (self._takes_objects or all(isinstance(leaf, torch.Tensor) for leaf in leaves)):
            raise TypeError("tensors only")
        return self._plane.put_samples(fields=fields, **call)

    def get_samples(self, **call: Any) -> TensorDict:
        batch = self._plane.get_samples(**call)
        columns = {name: self._change(batch.get(name)) for name in call["select_fields"]}
        count = next((c.size(0) for c in columns.values() if isinstance(c, torch.Tensor)), 8)
        return TensorDict(columns, batch_size=[count])


@pytest.fixture
def open_plane() -> Iterator[Callable[..., PartitionUnderTest]]:
    opened: list[Changing] = []

    def open_changing(change: Change, **options: Any) -> PartitionUnderTest:
        client: Any = Changing(change, **options)
        opened.append(client)
        part = PartitionUnderTest(client, "p", Timeouts())
        part.register()
        return part

    yield open_changing
    for client in opened:
        client.close()


@pytest.fixture(scope="module")
def rollout() -> SyntheticRollout:
    return rollout_batch(2, 4, aborted=1, image_shape=(2, 3, 2))


def by_row(change: Callable[[torch.Tensor], torch.Tensor]) -> Change:
    """The change for each row of the jagged columns."""
    return lambda leaf: (
        torch.nested.nested_tensor([change(row) for row in rows_of(leaf)], layout=torch.jagged)
        if isinstance(leaf, torch.Tensor) and is_jagged(leaf)
        else leaf
    )


def by_rows(change: Callable[[list[torch.Tensor]], Any]) -> Change:
    """The change for the rows of each column of tensors."""
    return lambda leaf: change(rows_of(leaf)) if isinstance(leaf, torch.Tensor) else leaf


def padded_with_zeros(rows: list[torch.Tensor]) -> torch.Tensor:
    if rows[0].dim() == 0:
        return torch.stack(rows)
    return torch.stack([padded(row, max(map(len, rows)), 0) for row in rows])


def moved_by_one(rows: list[torch.Tensor]) -> torch.Tensor:
    if rows[0].dim() != 1:
        return torch.stack(rows)
    lengths = [len(row) for row in rows]
    lengths[0], lengths[1] = lengths[0] + 1, lengths[1] - 1
    return stack_or_nest(list(torch.cat(rows).split(lengths)))


def nested(layout: torch.layout) -> Change:
    def nest(rows: list[torch.Tensor]) -> torch.Tensor:
        if rows[0].dim() == 0:
            return torch.stack(rows)
        return torch.nested.nested_tensor(rows, layout=layout)

    return by_rows(nest)


WRONG: dict[str, Change] = {
    "cast": by_row(lambda row: row.float()),
    "last token cut": by_row(lambda row: row[:-1]),
    "a token more": by_row(lambda row: torch.cat([row, row[:1]])),
    "reversed": by_row(lambda row: row.flip(0)),
    "padded with zeros": by_rows(padded_with_zeros),
    "rows swapped": by_rows(lambda rows: stack_or_nest([rows[1], rows[0], *rows[2:]])),
    "lengths off by one": by_rows(moved_by_one),
    "images flattened": by_rows(
        lambda rows: stack_or_nest([r.flatten() if r.dim() > 1 else r for r in rows])
    ),
    "rows inflated": by_rows(
        lambda rows: stack_or_nest([row[None] if row.dim() == 0 else row for row in rows])
    ),
    "a row dropped": by_rows(lambda rows: stack_or_nest(rows[:-1])),
    "empty leaves": lambda _: TensorDict({}, [8]),
}

RIGHT: dict[str, Change] = {
    "as put": lambda leaf: leaf,
    "dense where rows are equal": by_rows(stack_or_nest),
    "all jagged": nested(torch.jagged),
    "nested, strided": nested(torch.strided),
}


@pytest.mark.filterwarnings("ignore:.*nested tensors")
@pytest.mark.parametrize("change", RIGHT.values(), ids=RIGHT)
def test_correct_rows_pass_in_any_layout(
    open_plane: Callable[..., PartitionUnderTest], rollout: SyntheticRollout, change: Change
) -> None:
    step = StepBatch(open_plane(change), rollout.sample_ids, rollout.columns)
    for ids in (rollout.sample_ids, rollout.sample_ids[::-3], rollout.sample_ids[2:3]):
        for width in (None, 64):
            step.expect_padded(ids, FIELDS, width, PADS)


@pytest.mark.parametrize("width", [None, 64], ids=["own_width", "given_width"])
@pytest.mark.parametrize("change", WRONG.values(), ids=WRONG)
def test_wrong_rows_are_violations(
    open_plane: Callable[..., PartitionUnderTest],
    rollout: SyntheticRollout,
    change: Change,
    width: int | None,
) -> None:
    step = StepBatch(open_plane(change), rollout.sample_ids, rollout.columns)
    with pytest.raises(ContractViolation):
        step.expect_padded(rollout.sample_ids, FIELDS, width, PADS)


def test_a_violation_names_the_row(
    open_plane: Callable[..., PartitionUnderTest], rollout: SyntheticRollout
) -> None:
    step = StepBatch(open_plane(WRONG["last token cut"]), rollout.sample_ids, rollout.columns)
    with pytest.raises(ContractViolation, match="'input_ids' of row 's0p1_g3'"):
        step.expect_padded(["s0p1_g3", *rollout.sample_ids[:3]], ["input_ids"], 64)


def test_rows_too_long_for_the_codec_are_violations(
    open_plane: Callable[..., PartitionUnderTest], rollout: SyntheticRollout
) -> None:
    step = StepBatch(open_plane(WRONG["a token more"]), rollout.sample_ids, rollout.columns)
    with pytest.raises(ContractViolation, match="of row"):
        step.expect_padded(rollout.sample_ids, ["input_ids"], max(rollout.lengths))


def test_a_refusal_of_correct_rows_is_the_codecs_error(
    open_plane: Callable[..., PartitionUnderTest], rollout: SyntheticRollout
) -> None:
    step = StepBatch(open_plane(RIGHT["as put"]), rollout.sample_ids, rollout.columns)
    with pytest.raises(ValueError, match="pad_to_seqlen"):
        step.expect_padded(rollout.sample_ids, ["input_ids"], max(rollout.lengths) - 1)


def test_the_newest_values_are_expected(
    open_plane: Callable[..., PartitionUnderTest], rollout: SyntheticRollout
) -> None:
    step = StepBatch(open_plane(RIGHT["as put"]), rollout.sample_ids, rollout.columns)
    shard = step.meta.subset([5, 1])
    for value in (1.0, 2.0):
        step.write_back(shard, advantages=torch.full((2, 99), value))
    rows = step.rows(shard.sample_ids, "advantages")
    assert [row.tolist() for row in rows] == [[2.0] * n for n in shard.sequence_lengths or []]
    step.expect_padded(shard.sample_ids, ["advantages"])


# -- message logs ----------------------------------------------------------------------------------


def target_that(objects: bool | str | None) -> Target:
    """A target that declares the capability ``objects`` or not; ``None`` leaves it undeclared."""
    declared = {} if objects is None else {"objects": objects}
    return Target(name="t", open=lambda _cfg, _bootstrap: Any, capabilities=declared)  # type: ignore[arg-type]


OBJECTS_LOST: dict[str, Callable[[Any], Any]] = {
    "None": lambda _: None,
    "empty": lambda _: [],
    "a message less": lambda log: log[:-1],
    "another role": lambda log: [{**log[0], "role": "system"}, *log[1:]],
    "no spans": lambda log: [{k: v for k, v in m.items() if k != "token_span"} for m in log],
}


@pytest.mark.parametrize("lost", OBJECTS_LOST.values(), ids=OBJECTS_LOST)
def test_logs_that_changed_are_violations(
    open_plane: Callable[..., PartitionUnderTest],
    rollout: SyntheticRollout,
    lost: Callable[[Any], Any],
) -> None:
    def change(leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor):
            return leaf
        return object_column([lost(log) for log in leaf.tolist()])

    step = write_with_logs(open_plane(change), target_that(True), rollout)
    with pytest.raises(ContractViolation):
        expect_logs_rebuilt(step, rollout, rollout.sample_ids)


@pytest.mark.parametrize("objects", ["no code for them", None], ids=["declared", "open"])
def test_a_plane_without_objects_stores_the_tokens(
    open_plane: Callable[..., PartitionUnderTest], rollout: SyntheticRollout, objects: str | None
) -> None:
    part = open_plane(RIGHT["as put"], takes_objects=False)
    step = write_with_logs(part, target_that(objects), rollout)
    expect_logs_rebuilt(step, rollout, rollout.sample_ids[::-1])
    cut = open_plane(WRONG["last token cut"], takes_objects=False)
    step = write_with_logs(cut, target_that(objects), rollout)
    with pytest.raises(ContractViolation):
        expect_logs_rebuilt(step, rollout, rollout.sample_ids)


def test_a_plane_that_declares_objects_may_not_refuse_them(
    open_plane: Callable[..., PartitionUnderTest], rollout: SyntheticRollout
) -> None:
    part = open_plane(RIGHT["as put"], takes_objects=False)
    with pytest.raises(ContractViolation, match="objects"):
        write_with_logs(part, target_that(True), rollout)


def test_correct_logs_pass(
    open_plane: Callable[..., PartitionUnderTest], rollout: SyntheticRollout
) -> None:
    step = write_with_logs(open_plane(RIGHT["as put"]), target_that(True), rollout)
    for width in (None, 80):
        expect_logs_rebuilt(step, rollout, rollout.sample_ids, width)
    assert step.has_column("message_log")
    assert step.has_column(INPUT_IDS)
