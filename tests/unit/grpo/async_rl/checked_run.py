"""What must hold for every simulated run, whether it ended with a typed error or not."""

from __future__ import annotations

from collections import Counter

from rlconform.grpo.simulation.run import SimulatedOutcome


def check_run(outcome: SimulatedOutcome, bound: int, steps: int) -> None:
    """Assert it."""
    world = outcome.world
    prompts = Counter(group_id.partition("-r")[0] for _, group_id in world.trained)
    assert set(prompts.values()) <= {1}, "no prompt is trained on twice"
    for step, group_id in world.trained:
        assert step - world.starts[group_id] <= bound, (step, group_id)
    assert not world.workers.in_flight(), "nothing is being generated any more"
    if outcome.controller is None:
        return
    assert world.updates == steps
    controller = outcome.controller
    uniform = controller.buffer.fates["filtered_uniform"]
    skipped = controller.pump.queue.skipped.total()
    shutdown = controller.buffer.fates["shutdown"]
    assert world.position == len(world.trained) + skipped + uniform + shutdown
    assert not world.rows, "the plane is empty at the end"
    assert controller.buffer.size == 0
    assert controller.pump.inflight == 0
