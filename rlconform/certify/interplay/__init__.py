"""Interplay: one process looks, another changes something, and the answer to a third look is known.

covering ──▶ InterplayScenario ──▶ ScenarioRun ──calls──▶ the owner's and attached clients
                              │  ▲
                              ▼  └── SharedModel: the answer due
                          Difference ──▶ attribution: the requirement that it breaks
"""
