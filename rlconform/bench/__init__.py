"""``rlconform bench``: planes side by side, turn by turn, against a plain copy of the same bytes.

    command ──▶ run ──one pipe each──▶ station (a process group of its own) ──▶ plane
                 │                        ├─ desk: a client in a process of its own, puts
                 │                        └─ desk: a client in a process of its own, gets and claims
                 └──▶ Document ──▶ bench.json ──▶ ratios ──▶ tables, page

Stations wait while it is another's turn. A plane that crashes or hangs takes its station down,
never the run.
"""
