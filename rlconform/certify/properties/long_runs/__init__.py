"""Long runs: hundreds of random calls on two partitions, each answer compared with a model.

    suites/unit/properties/test_long_runs.py
      └─▶ run            the runs of a check; leaves steps out of a run that fails
            ├─▶ plan       what one run is made of: names, kinds of fields, tasks, ranks, how often
            │     ├─▶ probes       what the plane takes: unusual names, a second registration
            │     └─▶ near_*       values that differ by little from earlier ones
            ├─▶ caller     makes the calls in threads, in a loop or in inference mode
            └─▶ partition  writes, reads and clears of a partition
                  └─▶ claims       claims, waiting ones among them, and statuses
                        ├─▶ standing_claims  claims that wait all through a run
                        └─▶ rows             the rows, and the model of what they must be

An arrow leads to what a module uses. ``run`` says why there are long runs.
"""
