"""``PlaneStateMachine`` draws sequences of calls and compares the plane with the model.

    rule ──▶ one client call ──▶ answer ──▶ judged, if the profile judges it ──▶ a violation
                                   └──────▶ applied to the model

The drawn calls never depend on the plane's answers: a plane may claim rows in any order, and
Hypothesis must be able to draw the same sequence again.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import combinations
from typing import Any, Literal

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
from hypothesis.strategies import SearchStrategy

from rlconform.certify.properties.call_values import ARRANGED, FIELDS, IDS, TASKS, Universe
from rlconform.certify.properties.judge import SequenceStats
from rlconform.certify.properties.requirement_sequences import PROFILES, Call, SequenceProfile
from rlconform.certify.properties.runner import SETTINGS, PropertyRunner
from rlconform.certify.properties.sequence import CallSequence
from rlconform.contract.fields import INPUT_LENGTHS

#: Calls of a sequence; long runs look for what needs more.
STEPS = 20


def run_sequences(runner: PropertyRunner, profile: SequenceProfile) -> None:
    """Compare the plane with the model over sequences of the profile's calls.

    A share of the usual number of sequences may hold nothing that the profile judges; then twice as
    many follow, up to the usual number. The check also fails if errors that the profile doesn't
    judge ended each sequence before anything was judged.
    """
    stats = SequenceStats()

    def machine() -> PlaneStateMachine:
        return PlaneStateMachine(CallSequence(runner, profile, stats))

    seeded: Any = runner.seeded(machine)  # Hypothesis also takes a function that makes machines
    usual = settings(SETTINGS, max_examples=profile.examples, stateful_step_count=STEPS)
    tried = 0
    some = runner.with_effort(usual)
    while tried < usual.max_examples and not stats.compared and not runner.cut_short:
        runner.run(partial(run_state_machine_as_test, seeded, settings=some))
        tried = some.max_examples
        some = settings(usual, max_examples=min(2 * tried, usual.max_examples))
    if not stats.compared and stats.unjudged is not None:
        runner.fail(stats.unjudged, "which repeats it, too early to judge anything")
    if not stats.compared:
        pytest.skip("too slow: time was up before anything was judged")


def some_of(names: Sequence[str]) -> list[list[str]]:
    """Return all selections of names, forwards and backwards; drawing from them shrinks fast."""
    chosen = [list(some) for n in range(len(names)) for some in combinations(names, n + 1)]
    return chosen + [some[::-1] for some in chosen if len(some) > 1]


#: Each id stands for one row, or for more than a small page, word or batch of a plane.
UNIVERSE = st.builds(
    Universe,
    block=st.sampled_from([1, 1, 48, 1, 16, 1, 1, 300]),
    uneven=st.booleans(),
    layout=st.sampled_from(["labels", "numbers", "objects"]),
    stem=st.sampled_from(["", "_" * 100]),
    favourites=st.tuples(*[st.sampled_from(some_of(IDS))] * 2),
)

FAVOURITE = st.integers(0, 1)
SOME_IDS = FAVOURITE | st.sampled_from(some_of(IDS))
SOME_IDS_OR_ALL = FAVOURITE | st.sampled_from([*some_of(IDS), None])
ANY_IDS = FAVOURITE | st.sampled_from(some_of([*IDS, "nobody"]))
FIELD = st.sampled_from(FIELDS)
SOME_FIELDS = st.sampled_from(some_of(FIELDS))
FIELDS_OR_NONE = st.sampled_from([*some_of(FIELDS), [], [], []])
TASK = st.sampled_from(TASKS)
SOME_TASKS = st.sampled_from(some_of(TASKS))
#: Tags and fields are apart; claims report one tag as the rows' lengths.
TAG_KEY = st.sampled_from(["m", "alike", "alike", INPUT_LENGTHS, *FIELDS])
ARRANGE = st.sampled_from(list(ARRANGED))
WIDTH = st.sampled_from([0, 50, 400])
#: One of the profile's partitions; making a strategy takes longer than a draw, so all are kept.
PARTITIONS = {each.partitions: st.sampled_from(each.partitions) for each in PROFILES.values()}
PARTITION = st.runner().flatmap(
    lambda machine: PARTITIONS[machine.sequence.judge.profile.partitions]
)
#: ``dp_rank`` of a claim, and whether it blocks.
HOW = st.sampled_from([(None, False), (0, False), (1, False), (None, True), (1, True)])


def step(
    method: Call | Literal["put"],
    decorate: Callable[..., Callable[[Any], Any]] = rule,
    **drawn: SearchStrategy[Any],
) -> Any:
    """Build a rule that calls a method of one of the profile's partitions.

    The rule runs while there is time and the sequence has not ended. Profiles that don't make the
    call leave it out. All rules have one name: Hypothesis leaves out rules by name in some
    examples, and would often leave out all rules that could find a defect.
    """

    def a_step(machine: PlaneStateMachine, where: str, **values: Any) -> None:
        sequence = machine.sequence
        if values.get("ids") is not None:
            values["ids"] = sequence.judge.values.universe.chosen(values["ids"])
        sequence.guarded(lambda: getattr(sequence.partition(where), method)(**values))

    made = decorate(where=PARTITION, **drawn)(a_step)
    if method == "put":
        return made
    return precondition(lambda machine: method in machine.sequence.judge.profile.calls)(made)


#: Leaves out a clear straight after a clear, which rarely finds anything.
only_if_written = precondition(lambda machine: machine.sequence.judge.written)


class PlaneStateMachine(RuleBasedStateMachine):
    """Draws the calls of one sequence, which ``ModelledPartition`` makes."""

    def __init__(self, sequence: CallSequence) -> None:
        super().__init__()
        self.sequence = sequence

    @initialize(universe=UNIVERSE, where=PARTITION, ids=SOME_IDS, fields=SOME_FIELDS)
    def put_first(
        self, universe: Universe, where: str, ids: list[str] | int, fields: list[str]
    ) -> None:
        """Choose what the rows of this example are, and put some."""
        sequence = self.sequence
        if sequence.judge.runner.refuses_objects and universe.layout == "objects":
            universe = replace(universe, layout="numbers")
        sequence.judge.values.universe = universe
        sequence.guarded(lambda: sequence.partition(where).put(universe.chosen(ids), fields))

    put = step("put", ids=SOME_IDS, fields=SOME_FIELDS, width=WIDTH)
    overwrite = step("overwrite", ids=SOME_IDS, field=FIELD, width=WIDTH)
    tag = step("tag", ids=SOME_IDS, fields=FIELDS_OR_NONE, key=TAG_KEY)
    clear = only_if_written(step("clear", ids=SOME_IDS_OR_ALL))
    start_anew = only_if_written(step("start_anew"))
    claim = step("claim", task=TASK, fields=SOME_FIELDS, size=st.integers(1, len(IDS)), how=HOW)
    fetch = step("fetch", earlier=st.integers(0, 3), arrange=ARRANGE)
    spoil = step("spoil")
    time_out = step("time_out", task=TASK, fields=SOME_FIELDS, more=st.integers(1, 2))
    status = step("status", tasks=SOME_TASKS)
    read = step("read", ids=ANY_IDS, fields=SOME_FIELDS)
    read_again = step("read_again", earlier=st.integers(0, 1), arrange=ARRANGE)

    def teardown(self) -> None:
        """Read and claim all rows at the end of a sequence that did not fail."""
        if sys.exc_info()[0] is None:
            self.sequence.guarded(self.sequence.look_at_all)
