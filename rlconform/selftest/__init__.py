"""The suite on trial: right planes pass everything, broken ones fail exactly what they break.

catalogue ──mutant──▶ trial (a run of the checks) ──outcomes──▶ judging ──▶ matrix
"""
