"""Hostile files for every format that a command reads."""
