"""Runs checks in processes that may crash or hang; Ray actors are the plane's other processes.

    Runner ──▶ ForkServer ──starts──▶ forkserver_main ──forks──▶ test process (pytest) ──▶ plane
      ▲                                                              │         │
      └───────────────── events, one pipe ───────────────────────────┘         └──▶ Ray actors

The runner waits for the next event, with a deadline for each kind of event. Nothing else blocks it.
"""
