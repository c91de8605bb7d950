"""Trainers: one module per way of moving rows between the rollout worker and the policy workers.

    base            ``Trainer``: what all trainers have, and the methods that a new one implements
    driver_step     the driver's part of a step: scoring, selection, advantages, metrics
    legacy          rows in the driver's memory; uses legacy_policy, legacy_sharding
    plane           rows in a data plane; uses plane_policy

Modules import from ``base`` and ``driver_step``, not from another trainer. ``training_loop``
selects the trainer of a run.
"""
