"""The suite on trial: conforming planes pass everything, mutants fail what they declare.

registry ──mutant──▶ trial (a run of the checks) ──results──▶ classify ──▶ kill_matrix
"""
