"""``rlconform bench``: measures planes in alternation, and plain copies of the same bytes.

    cli/bench ──▶ BenchRunner ──pipe──▶ plane process (its own process group) ──▶ plane
                      │                   ├─ producer's TimedClient, in a separate process
                      │                   └─ consumers' TimedClients, in separate processes
                      └──▶ BenchDocument ──▶ bench.json ──▶ report: ratios, tables, page

One plane works at a time. A plane that crashes or hangs ends its process, not the run.
"""
