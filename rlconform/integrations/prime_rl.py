"""Imports the traces of a prime-rl run: ``rlconform events import --from prime-rl``.

A row is a trace that can be trained on; rows are numbered in the order in which they arrive. An
episode without traces has a row too, which has failed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from rlconform.events.schema import (
    Committed,
    DropCause,
    Feature,
    PromptDispatched,
    RewardComputed,
    RolloutFailed,
    RolloutFinished,
    RolloutStarted,
    RunStarted,
    StalenessBound,
    StalenessDefinition,
    Trained,
    Unlogged,
)
from rlconform.integrations.coverage import RuleCoverage
from rlconform.integrations.imported_log import ImportedLog
from rlconform.integrations.prime_rl_traces import (
    PolicySpan,
    PrimeEpisode,
    PrimeTrace,
    TraceError,
    episodes_in,
    steps_of,
)

COVERAGE = RuleCoverage(
    decided={
        "exactly_once": "each trace is in one batch, if the group size is given",
        "group_integrity": "what is trained on has arrived, without an error; groups may be split "
        "over steps, and traces filtered, so neither is an anomaly",
        "staleness": "from the policy span of each episode, if the bound is given; traces of a "
        "frozen policy have no span, and leave it undecided",
        "reward": "the rewards of what is trained on are those with which it arrived",
    },
    undecided={
        "completeness": "the traces don't say that the run is over",
        "accounting": "cancelled groups and causes of drops aren't written; it finds groups that "
        "are trained on and never arrived",
        "versions": "no engine writes when it applies weights; it finds gaps between steps",
        "after_end": "drops aren't written",
        "resume": "checkpoints and restarts aren't written",
        "liveness": "deadlines and the end of the run aren't known",
        "bias": "cancelled episodes, often the longest, aren't written",
        "plane_ops": "there is no data plane: it does not apply",
    },
)

#: Types of errors for which the prompt, not a process, is to blame.
_DATA_ERRORS = {"TaskError", "OverlongPromptError"}


class PrimeRun(NamedTuple):
    """What the traces don't say of a run; None if it isn't known.

    ``group_size`` is the number of trainable traces of a group, ``staleness_bound`` is
    ``max_off_policy_steps``.
    """

    name: str | None = None
    group_size: int | None = None
    staleness_bound: int | None = None


def import_prime_rl(source: Path, out: Path, declared: PrimeRun = PrimeRun()) -> ImportedLog:  # noqa: B008
    """Import the traces below the output folder of a run; return the log that was written.

    Raises:
        ValueError: There are no traces, or a line is malformed; no file is left.
        OSError: A file can't be read or written.
    """
    steps = steps_of(source)
    trained = _trained_rewards(steps)
    first = next((e for _, folder in steps for e in episodes_in(folder / "all")), None)
    if first is None:
        raise ValueError(
            f"{source}: no episode in rollouts/step_<n>/train/all/traces.jsonl; name the output "
            f"folder of a run of prime-rl"
        )
    with ImportedLog(out, declared.name or first.run.id, "prime_rl") as log:
        log.write(_run_started(declared), first.begun_s)
        importer = _Importer(log, trained)
        for step, folder in steps:
            for episode in episodes_in(folder / "all"):
                importer.arrive(episode)
            importer.train(step, episodes_in(folder / "effective"))
    return log


def _run_started(declared: PrimeRun) -> RunStarted:
    bound = declared.staleness_bound
    return RunStarted(
        group_size=declared.group_size,
        staleness=None
        if bound is None
        else StalenessBound(definition=StalenessDefinition.START, bound=bound),
        partial_groups=True,
        split_groups=True,
        features=[Feature.REWARD, Feature.SYNC],
        unlogged=[Unlogged.DROPPED, Unlogged.CHECKPOINT_SAVED],
    )


class _Importer:
    """Writes the events of episodes in the order in which they arrived and were trained on."""

    def __init__(self, log: ImportedLog, trained: dict[str, dict[str, float]]) -> None:
        self._log, self._trained = log, trained
        self._rows: dict[str, dict[str, int]] = {}  # by group, numbers of traces
        self._dispatched: set[str] = set()
        self._committed: set[str] = set()

    def arrive(self, episode: PrimeEpisode) -> None:
        """Write the rollouts of an episode."""
        group_id, policy, begun = episode.group_id, episode.policy, episode.begun_s
        if group_id not in self._dispatched:
            self._dispatched.add(group_id)
            self._log.write(
                PromptDispatched(
                    group_id=group_id, prompt_id=episode.prompt_id, step=episode.run.work.step,
                    version=policy.start if policy else None,
                ),
                begun,
            )  # fmt: skip
        if not episode.traces:
            row = self._row(group_id, episode.id)
            cause = _cause(episode.errors)
            self._log.write(RolloutFailed(group_id=group_id, row=row, cause=cause), begun)
        for trace in episode.traces:
            if trace.agent.trainable:
                self._write_trace(group_id, self._row(group_id, trace.id), trace, policy)

    def _row(self, group_id: str, trace_id: str) -> int:
        rows = self._rows.setdefault(group_id, {})
        return rows.setdefault(trace_id, len(rows))

    def _write_trace(
        self, group_id: str, row: int, trace: PrimeTrace, policy: PolicySpan | None
    ) -> None:
        start, end = (policy.start, policy.end) if policy else (None, None)
        tokens = sum(call.usage.completion_tokens for call in trace.calls if call.usage) or None
        timing = trace.timing
        ended = timing.agent.end or timing.start
        self._log.write(
            RolloutStarted(group_id=group_id, row=row, weight_version=start, sample_id=trace.id),
            timing.start,
        )
        if not trace.ok:
            cause = _cause(trace.errors)
            failed = RolloutFailed(group_id=group_id, row=row, cause=cause, tokens=tokens)
            self._log.write(failed, ended)
            return
        finished = RolloutFinished(group_id=group_id, row=row, weight_version=end, tokens=tokens)
        self._log.write(finished, ended)
        scored = RewardComputed(group_id=group_id, row=row, reward=trace.reward)
        self._log.write(scored, timing.scoring.end or ended)

    def train(self, step: int, episodes: Iterator[PrimeEpisode]) -> None:
        """Write what a step is trained on; the time of it isn't in the traces."""
        rows: dict[str, list[int]] = defaultdict(list)
        for episode in episodes:
            group_id = episode.group_id
            rows[group_id] += [self._row(group_id, trace.id) for trace in episode.traces]
        for group_id in rows:
            if group_id not in self._committed:
                self._commit(group_id)
        for group_id, of_group in rows.items():
            self._log.write(
                Trained(group_id=group_id, rows=of_group, step=step, version=max(0, step - 1))
            )

    def _commit(self, group_id: str) -> None:
        """Write that the traces of a group that are trained on, now or later, are ready."""
        self._committed.add(group_id)
        rewards = self._trained[group_id]
        rows = [self._row(group_id, trace_id) for trace_id in rewards]
        self._log.write(Committed(group_id=group_id, rows=rows, rewards=list(rewards.values())))


def _cause(errors: list[TraceError]) -> DropCause:
    last = errors[-1].type if errors else ""
    return DropCause.DATA_FAILURE if last in _DATA_ERRORS else DropCause.INFRA_FAILURE


def _trained_rewards(steps: list[tuple[int, Path]]) -> dict[str, dict[str, float]]:
    """Return the rewards of all traces that are trained on, by group and trace."""
    rewards: dict[str, dict[str, float]] = defaultdict(dict)
    for _, folder in steps:
        for episode in episodes_in(folder / "effective"):
            for trace in episode.traces:
                rewards[episode.group_id].setdefault(trace.id, trace.reward)
    return rewards
