"""The self-test of the suite: correct planes must pass all checks, and mutants must fail.

registry ──mutant──▶ trial (a run of the checks) ──results──▶ classify ──▶ kill_matrix
defect of the trainer ──▶ trainer_trials (a run, judged by check-run) ──▶ rule_matrix
"""
