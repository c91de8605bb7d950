"""Concurrent workloads on a plane, and checkers of the history that they leave.

    runner.run(Producer(...), Claimer(...))     each workload in a process or a thread of its own
        workload ──calls──▶ client ──▶ plane    logged: caller, method, start, end, result
        ◀──operations──                         collected even while a call hangs
    check_history(history, race, duplicated)    each checker is a pure function of the history

``events`` defines an operation · ``workloads`` the loops of client calls · ``logging_client`` logs
each call · ``workload_thread`` and ``workload_runner`` run the workloads · ``history`` answers what
must and what may have been true at a time · ``checkers`` find anomalies · ``explain`` puts them in
words · ``race_script`` writes the same race as plain client calls.
"""
