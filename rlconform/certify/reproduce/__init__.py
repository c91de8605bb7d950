"""Reproducers: scripts of client calls that show a failure, and the classes that they use.

    script ──starts──▶ child: the script again; it opens the plane and makes the client calls
           ◀─events──  each call begun and returned, then a violation or ``nothing``
           ──runs────▶ the check that failed, if the calls alone show no violation
           ──prints──▶ two last lines, ``expected ...`` and ``got ...``; then the exit code

The plane runs in the child because it may crash or hang its process.
"""

from rlconform.certify.reproduce.reproducer import Reproducer

__all__ = ["Reproducer"]
