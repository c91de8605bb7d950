"""Concurrent workloads on a plane, and checkers of the resulting history.

    runner.run(Producer(...), Claimer(...))     each workload in its own process or thread
        workload ──calls──▶ client ──▶ plane    logged: caller, method, start, end, result
        ◀──operations──                         collected even while a call hangs
    check_history(history, race, duplicated)    each checker is a pure function of the history

``operation`` defines an operation · ``workloads`` the loops of client calls · ``logging_client``
logs each call · ``workload_thread`` and ``workload_runner`` run the workloads · ``history`` derives
what must and what may have happened by a time · ``checkers`` find anomalies · ``explain``
describes them as text · ``race_script`` writes one of ``races`` as plain client calls.
"""
