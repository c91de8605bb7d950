"""``rlconform bench``: measures planes turn by turn, side by side with a plain copy of the bytes.

    cli/bench ──▶ BenchRunner ──pipe──▶ plane process (a process group of its own) ──▶ plane
                      │                   ├─ TimedClient of the producer, in a process of its own
                      │                   └─ TimedClient of each consumer, likewise
                      └──▶ BenchDocument ──▶ bench.json ──▶ report: ratios, tables, page

One plane process works at a time; the others wait. A plane that crashes or hangs takes its own
process down, not the run.
"""
