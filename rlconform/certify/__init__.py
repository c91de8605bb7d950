"""Certification: resolve a target, run the checks in processes that may die, judge, report.

    resolve ──▶ runner ──starts──▶ process (pytest, plugin) ──calls──▶ the plane
                  ▲                    │ checks play scenes, histories and generated examples on it;
                  └─ events, evidence ─┘ what they saw is evidence
    runner ──results──▶ verdict ──▶ report

Checks stand in ``suites/`` and are marked by ``marks.requirement``.
"""
