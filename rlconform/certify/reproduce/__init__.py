"""What a reproducer script runs on: the plane, opened in a process that may crash or hang.

script ──starts──▶ child: the script again, which opens the plane and makes the client calls
       ◀─events──  each call begun and returned, in the end a violation or none
script ──▶ the check itself, where the calls alone show nothing
       ──▶ two last lines, ``expected ...`` and ``got ...``, and the exit code
"""

from rlconform.certify.reproduce.script_plane import Reproducer

__all__ = ["Reproducer"]
