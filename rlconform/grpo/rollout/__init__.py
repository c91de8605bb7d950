"""Rollouts: the actors that generate rows, and the filters that decide which rows to train on.

worker             ``RolloutWorker``: returns its rows to the driver
plane_worker       ``PlaneRolloutWorker``: writes its rows to a data plane
staleness_filter   ``BaseRolloutFilter``, ``StalenessFilter``: keep or drop rows by their tags
"""
