"""Launches recipes on Slurm and judges their results.

    RECIPE ── recipes ──▶ Recipe ── job_folder ──▶ folder: config.yaml, job.json, code/, job.sbatch
                                                     │ slurm: sbatch, squeue, scontrol, scancel
    driver on the first node ◀── ci/slurm/ray.sbatch ┘
       └─▶ folder: run/metrics.jsonl, run/events, run/checkpoints, logs/ID[-RESTART]
    folder ── judge ──▶ verdict.json, junit.xml

names     the parts of a recipe's name          suites    lists of recipes, and what must hold
jobs      the sections job: and gates:          sites     what differs between clusters
"""
