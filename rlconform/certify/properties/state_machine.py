"""``PlaneStateMachine`` draws sequences of calls and compares the plane with the model.

    rule ──▶ one client call ──▶ answer ──▶ judged, if the profile judges it ──▶ a violation
                                   └──────▶ applied to the model

The drawn calls never depend on the plane's answers: a plane may claim rows in any order, and
Hypothesis must be able to draw the same sequence again.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from rlconform.certify.properties.requirement_sequences import PROFILES, Call, SequenceProfile
from rlconform.certify.properties.runner import SETTINGS, PropertyRunner
from rlconform.certify.properties.sequence import FIELDS, IDS, CallSequence, SequenceStats
from rlconform.certify.scenarios.partition import TASKS

SEQUENCES = settings(SETTINGS, max_examples=30, stateful_step_count=20)


def run_sequences(
    runner: PropertyRunner, profile: SequenceProfile, configured: settings = SEQUENCES
) -> None:
    """Compare the plane with the model over sequences of the profile's calls.

    Raises:
        FailedExample: The plane broke the contract in a sequence, or other errors ended each
            sequence before anything was judged.
    """
    stats = SequenceStats()

    def machine() -> PlaneStateMachine:
        return PlaneStateMachine(CallSequence(runner, profile, stats))

    seeded: Any = runner.seeded(machine)  # Hypothesis also takes a function that makes machines
    runner.run(lambda: run_state_machine_as_test(seeded, settings=runner.with_effort(configured)))
    if not stats.compared and stats.unjudged is not None:
        runner.fail(stats.unjudged, "which repeats it, too early to judge anything")
    if not stats.compared:
        pytest.skip("too slow: time was up before anything was judged")


def some_of(names: Sequence[str]) -> list[list[str]]:
    """All selections of names, forwards and backwards: one draw, which shrinks fast."""
    chosen = [list(some) for n in range(len(names)) for some in combinations(names, n + 1)]
    return chosen + [some[::-1] for some in chosen if len(some) > 1]


SOME_IDS = st.sampled_from(some_of(IDS))
SOME_IDS_OR_ALL = st.sampled_from([*some_of(IDS), None])
ANY_IDS = st.sampled_from(some_of([*IDS, "nobody"]))
FIELD = st.sampled_from(FIELDS)
SOME_FIELDS = st.sampled_from(some_of(FIELDS))
FIELDS_OR_NONE = st.sampled_from([*some_of(FIELDS), []])
TASK = st.sampled_from(TASKS)
SOME_TASKS = st.sampled_from(some_of(TASKS))
TAG_KEY = st.sampled_from(["m", "n"])
WIDTH = st.sampled_from([0, 40, 50])
#: One of the profile's partitions; making a strategy takes longer than a draw, so they are kept.
PARTITIONS = {each.partitions: st.sampled_from(each.partitions) for each in PROFILES.values()}
PARTITION = st.runner().flatmap(lambda machine: PARTITIONS[machine.sequence.profile.partitions])
#: ``dp_rank`` of a claim, and whether it blocks.
HOW = st.sampled_from([(None, False), (0, False), (1, False), (None, True), (1, True)])


def step(body: Callable[..., None]) -> Callable[..., None]:
    """The body of a rule, which runs while there is time and the sequence has not ended.

    All bodies get one name. Hypothesis leaves out rules by name in some examples, and with so few
    rules it would often leave out all that could find something.
    """

    def a_step(machine: PlaneStateMachine, **drawn: Any) -> None:
        machine.sequence.guarded(lambda: body(machine, **drawn))

    return a_step


def only_if_in_profile(call: Call) -> Callable[[Any], Any]:
    """Leave a rule out of the profiles that don't make its call."""
    return precondition(lambda machine: call in machine.sequence.profile.calls)


#: Leaves out a clear straight after a clear, which rarely finds anything.
only_if_written = precondition(lambda machine: machine.sequence.written)


class PlaneStateMachine(RuleBasedStateMachine):
    """Draws the calls of one sequence. The rules are short: ``CallSequence`` makes the calls."""

    def __init__(self, sequence: CallSequence) -> None:
        super().__init__()
        self.sequence = sequence

    @initialize(where=PARTITION, ids=SOME_IDS, fields=SOME_FIELDS)
    @step
    def put_first(self, where: str, ids: list[str], fields: list[str]) -> None:
        """Put the first rows."""
        self.sequence.write_new(self.sequence.partition(where), ids, fields)

    @rule(where=PARTITION, ids=SOME_IDS, fields=SOME_FIELDS, width=WIDTH)
    @step
    def put(self, where: str, ids: list[str], fields: list[str], width: int) -> None:
        """Put new fields, of new or existing rows."""
        self.sequence.write_new(self.sequence.partition(where), ids, fields, width)

    @only_if_in_profile("overwrite")
    @rule(where=PARTITION, ids=SOME_IDS, field=FIELD, width=WIDTH)
    @step
    def overwrite(self, where: str, ids: list[str], field: str, width: int) -> None:
        """Put newer values, of any length."""
        partition = self.sequence.partition(where)
        held = [i for i in ids if partition.model.produced(i, [field])]
        self.sequence.write(partition, held, [field], width, "overwrite")

    @only_if_in_profile("tag")
    @rule(where=PARTITION, ids=SOME_IDS, fields=FIELDS_OR_NONE, key=TAG_KEY)
    @step
    def tag(self, where: str, ids: list[str], fields: list[str], key: str) -> None:
        """Put tags, alone or with new fields."""
        partition = self.sequence.partition(where)
        if fields:
            self.sequence.write_new(partition, ids, fields, key=key)
        else:
            self.sequence.write(partition, ids, [], 0, "tag", key)

    @only_if_in_profile("clear")
    @only_if_written
    @rule(where=PARTITION, ids=SOME_IDS_OR_ALL)
    @step
    def clear(self, where: str, ids: list[str] | None) -> None:
        """Clear rows that exist, that never did, or all."""
        self.sequence.clear(self.sequence.partition(where), ids)

    @only_if_in_profile("start_anew")
    @only_if_written
    @rule(where=PARTITION)
    @step
    def start_anew(self, where: str) -> None:
        """Clear all and register again."""
        self.sequence.start_anew(self.sequence.partition(where))

    @only_if_in_profile("claim")
    @rule(where=PARTITION, task=TASK, fields=SOME_FIELDS, size=st.integers(1, len(IDS)), how=HOW)
    @step
    def claim(
        self, where: str, task: str, fields: list[str], size: int, how: tuple[int | None, bool]
    ) -> None:
        """Claim, for a rank or none, blocking or not."""
        self.sequence.claim(self.sequence.partition(where), task, fields, size, *how)

    @only_if_in_profile("fetch")
    @rule(where=PARTITION, earlier=st.integers(0, 3))
    @step
    def fetch(self, where: str, earlier: int) -> None:
        """Read the rows of one of the last claims by its meta."""
        self.sequence.fetch(self.sequence.partition(where), earlier)

    @only_if_in_profile("time_out")
    @rule(where=PARTITION, task=TASK, fields=SOME_FIELDS, more=st.integers(1, 2))
    @step
    def time_out(self, where: str, task: str, fields: list[str], more: int) -> None:
        """Block for more rows than are ready."""
        self.sequence.time_out(self.sequence.partition(where), task, fields, more)

    @only_if_in_profile("status")
    @rule(where=PARTITION, tasks=SOME_TASKS)
    @step
    def status(self, where: str, tasks: list[str]) -> None:
        """Ask whether one task, or both, claimed all rows."""
        self.sequence.compare_status(self.sequence.partition(where), tasks)

    @only_if_in_profile("read")
    @rule(where=PARTITION, ids=ANY_IDS, fields=SOME_FIELDS)
    @step
    def read(self, where: str, ids: list[str], fields: list[str]) -> None:
        """Read rows that exist, or some that don't."""
        self.sequence.read(self.sequence.partition(where), ids, fields)

    def teardown(self) -> None:
        """Read and claim all rows at the end of a sequence without a failure."""
        if sys.exc_info()[0] is None:
            self.sequence.guarded(self.sequence.look_at_all)
