"""Defects of the asynchronous trainer, which ``check-run`` must find in the log of a run.

    defect.py       the class ``TrainerDefect``, its decorator, and how one is planted
    timings.py      how long generations take in runs that show a defect

The other files hold the defects, by what they break.
"""
