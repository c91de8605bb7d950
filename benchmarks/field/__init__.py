"""Certifies the available planes, and writes their public matrix, ``docs/field.md``."""
