"""What brings the runs of other frameworks to ``check-run``: importers of their logs, and hooks.

Each module reads or is called by one framework, imports nothing of it before it is used, and says
in its constant ``COVERAGE`` which rules its events let be decided.
"""
