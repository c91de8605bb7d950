"""Hypothesis strategies: scenarios of the model of a framework."""

from __future__ import annotations

from hypothesis import strategies as st

from .scenario import Scenario

scenarios = st.builds(
    Scenario,
    sampler=st.sampled_from(["ready_first", "in_order", "freshest", "weight_fifo"]),
    bound=st.integers(0, 3),
    group_size=st.integers(1, 4),
    prompts_per_step=st.integers(1, 4),
    steps=st.integers(1, 6),
    engines=st.integers(1, 3),
    sync=st.sampled_from(["drain", "in_flight", "abort"]),
    plane=st.booleans(),
    failures=st.sampled_from([0.0, 0.2]),
    filters=st.sampled_from([0.0, 0.2]),
    unrewarded=st.sampled_from([0.0, 0.2]),
    engine_dies_in_step=st.sampled_from([None, 1, 2]),
    crash_after_step=st.sampled_from([None, 1, 2]),
    same_names=st.booleans(),
    ranks=st.integers(1, 2),
    seed=st.integers(0, 2**32),
)
