"""Rollouts: the actors that generate rows, and the filters that decide which rows to train on.

turn_loop          ``TurnLoop``: generates rows turn by turn
worker             ``RolloutWorker``: returns its rows to the driver
groups             groups that are generated one per call, and can be aborted
plane_worker       ``PlaneRolloutWorker``: writes its rows to a data plane
staleness_filter   ``BaseRolloutFilter``, ``StalenessFilter``: keep or drop rows by their tags
"""
