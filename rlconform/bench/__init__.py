"""``rlconform bench``: measures planes turn by turn, next to a plain copy of the same bytes.

    cli/bench ──▶ BenchRunner ──pipe──▶ plane process (its own process group) ──▶ plane
                      │                   ├─ TimedClient of the producer, in a separate process
                      │                   └─ TimedClient of each consumer, likewise
                      └──▶ BenchDocument ──▶ bench.json ──▶ report: ratios, tables, page

One plane process works at a time; the others wait. A plane that crashes or hangs ends only its
process, not the run.
"""
