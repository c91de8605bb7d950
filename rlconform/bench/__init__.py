"""``rlconform bench``: measures planes turn by turn, next to a plain copy of the same bytes.

    cli/bench ──▶ BenchRunner ──pipe──▶ plane process (its own process group) ──▶ plane
                      │                   ├─ TimedClient of the producer, in a separate process
                      │                   └─ TimedClient of each consumer, likewise
                      └──▶ BenchDocument ──▶ bench.json ──▶ report: ratios, tables, page

One plane works at a time; one that crashes or hangs ends only its own process, not the run.
"""
