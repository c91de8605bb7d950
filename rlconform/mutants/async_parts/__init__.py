"""Defects of parts of the asynchronous trainer whose history is not in the log of a run.

    part_defect.py        the class ``PartDefect`` and its decorator
    batching_executor.py  the executor of a reward model
    row_rewards.py        the reward loop, and the rewards of rows
    trajectory_queue.py   the queue between rollouter and trainer

Each is found by a rule of the part's judge, which reads a recorded history.
"""
