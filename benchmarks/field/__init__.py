"""Certifies the planes that can be had, and writes their public matrix, ``docs/field.md``."""
