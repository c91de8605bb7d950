"""Runs the checks on a target in processes that may crash, and reports a verdict.

    certify.certify ──▶ isolation ──starts──▶ test process: pytest with plugin ──▶ checks ──▶ plane
           │                ▲                                    │
           ▼                └────────────── events ──────────────┘
         report: verdict, root causes, waivers, files

The checks in ``suites/`` use ``scenarios``, ``properties``, ``concurrency`` and ``assertions``;
``recording`` records the client calls that they make. A check is marked with its requirement by
``plugin.markers.requirement``.
"""
