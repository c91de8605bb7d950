"""``rlconform soak``: a plane under realistic load for minutes, with every byte checked.

callers    producers, claimers and readers
ledger     what happened to each row: delivered once, with its bytes
samples    memory and descriptors of each process, rates and latencies of each second
judge      pass, fail or indeterminate, from the ledger and the slopes. Pure functions
run        starts the callers, drains their calls, grants ids to be used again
dashboard  the live view in a terminal
report     ``soak.json`` and a page with plots
"""
