"""The consumption status while rows are produced and claimed, asked for by several processes."""

from __future__ import annotations

from rlconform.certify.history.calls import hung, refused
from rlconform.certify.history.crowd import Stage, in_parts
from rlconform.certify.history.explain import judge
from rlconform.certify.history.roles import Asker, Claimer, Producer
from rlconform.certify.history.status import early_status, late_status, non_monotonic
from rlconform.certify.marks import requirement

SECONDS = 2.0


@requirement("STAT-01")
def test_the_status_is_true_only_when_all_was_claimed(stage: Stage) -> None:
    for seconds in in_parts(SECONDS):
        stage.play(Producer(seconds, rows=2), Claimer(batch=1), Claimer(batch=1), Asker())
        history = stage.play(Asker())  # when all is claimed
        judge(history, "status", early_status, late_status, refused, hung)


@requirement("STAT-02")
def test_processes_agree_on_the_status(stage: Stage) -> None:
    for seconds in in_parts(SECONDS):
        producer = Producer(seconds, rows=1, reads_back=4)  # time for answers that nothing changes
        history = stage.play(producer, Claimer(), Asker(), Asker())
        judge(history, "status", non_monotonic, refused, hung)
