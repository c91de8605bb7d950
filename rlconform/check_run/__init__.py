"""Judges a run from its events: one rule per module, each a streaming state machine.

events ─▶ judge: rules, ledger, overview ─▶ verdicts ─▶ report: console, JSON, JUnit, HTML
"""
