"""Any history of calls against the model, as a rule-based machine.

    rule ──▶ one client call ──▶ what came ──▶ judged, if the play judges it ──▶ a violation
                                     └───────▶ followed by the model

What is drawn never depends on what the plane answered: a plane is free in the order of its claims,
and Hypothesis must be able to draw the same history again.
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

from rlconform.certify.properties.runner import SETTINGS, PropertyRunner
from rlconform.certify.properties.sequence import FIELDS, IDS, CallSequence, SequenceStats
from rlconform.certify.properties.sequence_profiles import PROFILES, Call, SequenceProfile
from rlconform.certify.scenarios.partition import TASKS

HISTORIES = settings(SETTINGS, max_examples=30, stateful_step_count=20)


def run_sequences(
    explorer: PropertyRunner, play: SequenceProfile, configured: settings = HISTORIES
) -> None:
    """Hold the plane against the model over histories of the play's calls.

    Raises:
        FailedExample: A history in which the plane did what the contract doesn't allow, or that
            other errors kept it from being judged at all.
    """
    tally = SequenceStats()

    def machine() -> PlaneStateMachine:
        return PlaneStateMachine(CallSequence(explorer, play, tally))

    seeded: Any = explorer.seeded(machine)  # Hypothesis takes a function that makes machines too
    explorer.run(
        lambda: run_state_machine_as_test(seeded, settings=explorer.with_effort(configured))
    )
    if not tally.compared and tally.unjudged is not None:
        explorer.fail(tally.unjudged, "which repeats it, so early that nothing could be judged")
    if not tally.compared:
        pytest.skip("too slow: time was up before there was anything to judge")


def some_of(names: Sequence[str]) -> list[list[str]]:
    """Any of the names, forwards and backwards: one choice, which is quick to make smaller."""
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
#: One of the play's partitions; the strategies are made once, as that takes longer than a draw.
PARTITIONS = {play.partitions: st.sampled_from(play.partitions) for play in PROFILES.values()}
PARTITION = st.runner().flatmap(lambda machine: PARTITIONS[machine.history.play.partitions])
#: How a claim is made: its ``dp_rank``, and whether it blocks.
HOW = st.sampled_from([(None, False), (0, False), (1, False), (None, True), (1, True)])


def step(body: Callable[..., None]) -> Callable[..., None]:
    """A rule's body: it runs while there is time and the history goes on.

    All have one name, by which Hypothesis would leave rules out of a history: of rules this few it
    would often leave out so many that nothing could go wrong any more.
    """

    def a_step(machine: PlaneStateMachine, **drawn: Any) -> None:
        machine.history.guarded(lambda: body(machine, **drawn))

    return a_step


def only_if_in_play(call: Call) -> Callable[[Any], Any]:
    """Leave a rule out of the plays that don't make its call."""
    return precondition(lambda machine: call in machine.history.play.calls)


#: A clear of what was cleared just now is rarely worth a call.
only_if_written = precondition(lambda machine: machine.history.written)


class PlaneStateMachine(RuleBasedStateMachine):
    """Draws the calls of one sequence. The rules are short: ``CallSequence`` makes the calls."""

    def __init__(self, history: CallSequence) -> None:
        super().__init__()
        self.history = history

    @initialize(where=PARTITION, ids=SOME_IDS, fields=SOME_FIELDS)
    @step
    def put_first(self, where: str, ids: list[str], fields: list[str]) -> None:
        """Rows to begin with."""
        self.history.write_new(self.history.side(where), ids, fields)

    @rule(where=PARTITION, ids=SOME_IDS, fields=SOME_FIELDS, width=WIDTH)
    @step
    def put(self, where: str, ids: list[str], fields: list[str], width: int) -> None:
        """New fields, of new rows or beside what rows have."""
        self.history.write_new(self.history.side(where), ids, fields, width)

    @only_if_in_play("overwrite")
    @rule(where=PARTITION, ids=SOME_IDS, field=FIELD, width=WIDTH)
    @step
    def overwrite(self, where: str, ids: list[str], field: str, width: int) -> None:
        """Newer values, of any length."""
        side = self.history.side(where)
        held = [i for i in ids if side.model.produced(i, [field])]
        self.history.write(side, held, [field], width, "overwrite")

    @only_if_in_play("tag")
    @rule(where=PARTITION, ids=SOME_IDS, fields=FIELDS_OR_NONE, key=TAG_KEY)
    @step
    def tag(self, where: str, ids: list[str], fields: list[str], key: str) -> None:
        """Tags alone, or with new fields."""
        side = self.history.side(where)
        if fields:
            self.history.write_new(side, ids, fields, key=key)
        else:
            self.history.write(side, ids, [], 0, "tag", key)

    @only_if_in_play("clear")
    @only_if_written
    @rule(where=PARTITION, ids=SOME_IDS_OR_ALL)
    @step
    def clear(self, where: str, ids: list[str] | None) -> None:
        """Rows that are there, that never were, or all."""
        self.history.clear(self.history.side(where), ids)

    @only_if_in_play("start_anew")
    @only_if_written
    @rule(where=PARTITION)
    @step
    def start_anew(self, where: str) -> None:
        """All cleared, and registered again."""
        self.history.start_anew(self.history.side(where))

    @only_if_in_play("claim")
    @rule(where=PARTITION, task=TASK, fields=SOME_FIELDS, size=st.integers(1, len(IDS)), how=HOW)
    @step
    def claim(
        self, where: str, task: str, fields: list[str], size: int, how: tuple[int | None, bool]
    ) -> None:
        """Now, for a rank or none, or after a wait."""
        self.history.claim(self.history.side(where), task, fields, size, *how)

    @only_if_in_play("fetch")
    @rule(where=PARTITION, earlier=st.integers(0, 3))
    @step
    def fetch(self, where: str, earlier: int) -> None:
        """What one of the last claims handed out, by its meta."""
        self.history.fetch(self.history.side(where), earlier)

    @only_if_in_play("time_out")
    @rule(where=PARTITION, task=TASK, fields=SOME_FIELDS, more=st.integers(1, 2))
    @step
    def time_out(self, where: str, task: str, fields: list[str], more: int) -> None:
        """A wait for more rows than there are."""
        self.history.time_out(self.history.side(where), task, fields, more)

    @only_if_in_play("status")
    @rule(where=PARTITION, tasks=SOME_TASKS)
    @step
    def status(self, where: str, tasks: list[str]) -> None:
        """Whether one task, or both, have claimed all."""
        self.history.compare_status(self.history.side(where), tasks)

    @only_if_in_play("read")
    @rule(where=PARTITION, ids=ANY_IDS, fields=SOME_FIELDS)
    @step
    def read(self, where: str, ids: list[str], fields: list[str]) -> None:
        """Rows that are there, or some that aren't."""
        self.history.read(self.history.side(where), ids, fields)

    def teardown(self) -> None:
        """The end of a history that went well: all its rows are looked at."""
        if sys.exc_info()[0] is None:
            self.history.guarded(self.history.look_at_all)
