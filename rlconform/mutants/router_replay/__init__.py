"""Defects of router replay, which ``check-r3`` must find in the trace of a step.

    defect.py    the class ``ReplayDefect`` and its decorator
    registry.py  lists all defects

The other files hold the defects, by the class that they break.
"""
