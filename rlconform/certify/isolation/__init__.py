"""Runs checks in processes that may crash or hang; Ray actors are the plane's other processes.

    Runner ─▶ ShareRunner ─▶ ForkServer ─starts─▶ forkserver_main ─forks─▶ test process ─▶ plane
                   ▲                                                       │      │
                   └────────────── events, one pipe ───────────────────────┘      └─▶ Ray actors

A share runner waits for the next event, with a deadline for each kind of event; nothing else blocks
it. There is one for each plane that runs at a time (``--jobs``), each with its own fork server.
"""
