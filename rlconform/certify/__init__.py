"""Certification: resolve a target, run the checks in a child process, judge, report."""
