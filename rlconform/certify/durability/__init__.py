"""Level ``durability``: processes that are killed, stopped or slowed, full planes, and load.

nemeses        what happens to a process: killed, stopped, slowed; to a plane: connections closed
callers        workloads that go on when calls fail
moments        when a fault comes, from the calls that a caller has made
fault_run      starts callers in processes of their own, strikes, and collects one history
fault_verdict  pass, fail or indeterminate, from the history and the faults
fill           puts rows until the plane refuses or waits
cost_growth    whether calls become slower, or processes larger, as a run goes on
"""
