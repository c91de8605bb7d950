"""Any interleaving: Hypothesis chooses durations, failures, sizes, samplers and restarts."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import event, given, settings
from hypothesis import strategies as st

from rlconform.check_run.judge import judge_run
from rlconform.grpo.config.async_rl import AsyncRLConfig
from rlconform.grpo.replay.slots import Failure
from rlconform.grpo.simulation.log import SimulatedLog
from rlconform.grpo.simulation.run import SimulatedOutcome, run_steps
from rlconform.grpo.simulation.world import Faults, World
from rlconform.grpo.trainers.stall_watchdog import StallError

from .checked_run import check_run

STEPS = 5
SAMPLERS = ("in_order", "windowed", "ready_first", "weight_fifo")


@st.composite
def sampler_blocks(draw: st.DrawFn) -> dict[str, Any]:
    """A sampler with its window."""
    name = draw(st.sampled_from(SAMPLERS))
    window = draw(st.integers(0, 3))
    if name == "in_order":
        return {"name": name, "max_lookahead_versions": window}
    block: dict[str, Any] = {"name": name, "max_staleness_versions": window}
    if name == "windowed":
        block["sample_freshest_first"] = draw(st.booleans())
    return block


def window_of(block: dict[str, Any]) -> int:
    window: int = block.get("max_lookahead_versions", block.get("max_staleness_versions"))
    return window


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_any_run_goes_on_or_ends_with_a_typed_error(data: st.DataObject) -> None:
    any_run(data, SimulatedLog(None))


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_the_log_of_any_run_is_clean(data: st.DataObject) -> None:
    with TemporaryDirectory() as folder:
        outcome = any_run(data, SimulatedLog(Path(folder)))
        report = judge_run([Path(folder)])
    # A run that ends early leaves rules undecided; nothing in it is wrong all the same.
    assert report.not_clean(undecided=outcome.controller is not None) == []


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_any_run_over_a_queue_goes_on_or_ends_with_a_typed_error(data: st.DataObject) -> None:
    any_run(data, SimulatedLog(None), queue=True)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_the_log_of_any_run_over_a_queue_is_clean(data: st.DataObject) -> None:
    with TemporaryDirectory() as folder:
        outcome = any_run(data, SimulatedLog(Path(folder)), queue=True)
        report = judge_run([Path(folder)])
    assert report.not_clean(undecided=outcome.controller is not None) == []


@st.composite
def queue_blocks(draw: st.DrawFn, chunk: int) -> dict[str, Any]:
    """The queue's section, with room for a chunk."""
    return {
        "staleness_threshold": draw(st.sampled_from([0.0, 0.3, 1.0, 2.5])),
        "trigger_parameter_sync_step": draw(st.integers(1, 3)),
        "capacity": draw(st.one_of(st.none(), st.integers(chunk, chunk + 3))),
        "on_full": draw(st.sampled_from(["wait", "refuse"])),
        "max_staleness_versions": draw(st.sampled_from([None, None, 3, 4])),
    }


def any_run(data: st.DataObject, log: SimulatedLog, *, queue: bool = False) -> SimulatedOutcome:
    prompts = data.draw(st.integers(1, 4), "prompts")
    chunk = data.draw(st.integers(1, 5), "chunk")
    if queue:
        block = data.draw(queue_blocks(min(chunk, prompts)), "queue")
        transport: dict[str, Any] = {"transport": "queue", "queue": block}
        every = block["trigger_parameter_sync_step"]
    else:
        block = data.draw(sampler_blocks(), "sampler")
        slots = prompts * (window_of(block) + 1) + data.draw(st.integers(0, 5), "spare slots")
        transport, every = {"sampler": block, "max_buffered_rollouts": slots}, 1
    partial, in_flight = data.draw(
        st.sampled_from([(False, False), (True, False), (False, True)]), "updates"
    )
    restarts = data.draw(st.sets(st.integers(1, STEPS - 1), max_size=2), "restarts")
    config = AsyncRLConfig.model_validate(
        {
            **transport,
            "min_groups_for_streaming_train": chunk,
            "max_inflight_prompts": data.draw(st.integers(1, 6), "in flight"),
            "partial_rollouts": partial,
            "in_flight_weight_updates": in_flight,
            "checkpoint_rows": data.draw(st.booleans(), "rows in checkpoints"),
            "rollout_failure": {
                "max_infra_attempts_per_prompt": 2,
                "max_data_attempts_per_prompt": 1,
                "max_stale_attempts_per_prompt": data.draw(st.integers(1, 4), "stale attempts"),
                "max_skipped_prompts": data.draw(st.sampled_from([0, 3, 100]), "skips"),
                "on_dropped_prompt": data.draw(st.sampled_from(["shrink", "replace"])),
                "min_step_batch_fraction": 0.3,
                "generation_timeout_s": 50.0,
            },
        }
    )
    durations = data.draw(st.lists(st.floats(0.0, 12.0), min_size=1, max_size=8), "durations")
    failures = st.dictionaries(
        st.builds(
            lambda number, attempt: f"p{number}" + (f"-r{attempt}" if attempt else ""),
            st.integers(0, prompts * STEPS),
            st.integers(0, 2),
        ),
        st.sampled_from(Failure),
        max_size=6,
    )
    uniform = data.draw(st.sets(st.integers(0, prompts * STEPS), max_size=4), "uniform")
    world = World(
        lambda group_id: durations[sum(map(ord, group_id)) % len(durations)],
        train_s=data.draw(st.floats(0.0, 4.0), "training"),
        sync_s=data.draw(st.floats(0.0, 2.0), "sync"),
        faults=Faults(data.draw(failures, "failures"), {f"p{number}" for number in uniform}),
        queue_s=data.draw(st.sampled_from([0.0, 0.01, 0.5]), "way to the queue") if queue else 0.0,
        log=log,
    )
    # A checkpoint is made after a weight sync.
    at_sync = sorted({step - step % every for step in restarts} - {0})
    outcome = run_steps(config, world, prompts=prompts, steps=STEPS, restarts=at_sync)
    event(f"{config.arrangement}: {type(outcome.error).__name__}")
    assert not isinstance(outcome.error, StallError), outcome.error
    bound = config.max_staleness(prompts)
    assert bound is not None
    check_run(outcome, bound, STEPS)
    assert world.most_inflight <= config.max_inflight_prompts
    return outcome
