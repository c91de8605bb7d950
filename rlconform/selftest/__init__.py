"""The self-test of the suite: conforming planes pass all checks, mutants fail what they declare.

registry ──mutant──▶ trial (a run of the checks) ──results──▶ classify ──▶ kill_matrix
"""
