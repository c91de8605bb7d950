"""Opens the event log of a run, in the driver and in its actors, and declares the run.

    trainer ── open_event_log ──▶ a file of the driver: run_started
                              ──▶ one of each actor (``EventsActor``)

An earlier part of the run may have left files in the folder. Its name is kept, its dead processes
are reported, and without a checkpoint the run begins again at step 0.
"""

from __future__ import annotations

import uuid
from pathlib import Path

from rlconform.events.left_over import left_over
from rlconform.events.schema import Feature, RunStarted, StalenessBound, StalenessDefinition
from rlconform.grpo.actors import RunActors
from rlconform.grpo.checkpoint_folders import Checkpoints
from rlconform.grpo.config import MasterConfig
from rlconform.grpo.config.async_rl import AsyncRLConfig, InOrderConfig
from rlconform.grpo.events_actor import EventLogPlace
from rlconform.grpo.planned_steps import declared_steps
from rlconform.grpo.run_events import RunEvents
from rlconform.grpo.trainers.driver_step import prompts_to_generate

#: Calls of actors in a synchronous step, each of which may take ``cluster.timeout_s``.
_CALLS_OF_A_STEP = 8


def open_event_log(
    config: MasterConfig, actors: RunActors, *, plane: bool, problems: int | None
) -> RunEvents:
    """Open the log in ``logger.events_dir``, or one that writes nothing without this option.

    ``plane`` says whether the trainer has a data plane, ``problems`` how many an epoch has.
    """
    if config.logger.events_dir is None:
        return RunEvents()
    folder = Path(config.logger.events_dir).absolute()
    run, dead = left_over(folder)
    place = EventLogPlace(str(folder), run or f"{folder.name}-{uuid.uuid4().hex[:8]}")
    events = RunEvents(place.writer("driver"), place)
    events.begin(declared_run(config, plane=plane, problems=problems), dead)
    if run is not None and Checkpoints(config.checkpointing).newest() is None:
        events.resumed_from(0)
    actors.open_events(place, events)
    return events


def declared_run(config: MasterConfig, *, plane: bool, problems: int | None) -> RunStarted:
    """Return what holds for the whole run."""
    grpo = config.grpo
    if config.async_rl is not None:
        prompts = grpo.num_prompts_per_step
        return declared_async_run(
            config.async_rl,
            prompts,
            grpo.num_generations_per_prompt,
            declared_steps(grpo, problems, prompts),
        )
    features = [Feature.REWARD, Feature.SYNC, *[Feature.PLANE] * plane]
    batches = grpo.dynamic_sampling_max_gen_batches if grpo.use_dynamic_sampling else 1
    return RunStarted(
        algorithm="grpo",
        group_size=grpo.num_generations_per_prompt,
        prompts_per_step=grpo.num_prompts_per_step,
        steps=declared_steps(grpo, problems, prompts_to_generate(grpo)),
        final_sync=True,
        staleness=StalenessBound(definition=StalenessDefinition.START, bound=0),
        mixed_versions=False,
        prompts_once=True,
        rollout_deadline_s=config.cluster.timeout_s,
        step_deadline_s=config.cluster.timeout_s * (_CALLS_OF_A_STEP + batches),
        features=features,
    )


def declared_async_run(
    block: AsyncRLConfig, prompts: int, group_size: int, steps: int | None
) -> RunStarted:
    """Return what holds for a whole asynchronous run."""
    bound = block.max_staleness(prompts)
    deadline = block.rollout_failure.generation_timeout_s
    return RunStarted(
        algorithm="grpo",
        group_size=group_size,
        prompts_per_step=prompts,
        steps=steps,
        final_sync=True,
        staleness=None
        if bound is None
        else StalenessBound(definition=StalenessDefinition.START, bound=bound),
        mixed_versions=block.in_flight_weight_updates or block.partial_rollouts,
        prompts_once=True,
        prompts_for_step=block.transport == "buffer" and isinstance(block.sampler, InOrderConfig),
        capacity=block.slots(prompts),
        rollout_deadline_s=deadline,
        step_deadline_s=deadline + block.stall_watchdog.stall_timeout,
        features=[Feature.REWARD, Feature.SYNC, Feature.PLANE],
    )
