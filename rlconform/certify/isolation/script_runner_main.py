"""The process that runs scripts for ``ScriptRunner``, each in a fork that finds torch imported."""

from __future__ import annotations

import os
import runpy
import sys
import traceback
from pathlib import Path

from rlconform._preload import preload


def main() -> None:
    """Write a line when ready; run the script of each path that comes; write its exit code."""
    preload(("numpy", "torch", "tensordict"))
    _write("ready")
    for line in sys.stdin:
        path = line.rstrip("\n")
        pid = os.fork()
        if not pid:
            _run(path)
        _, status = os.waitpid(pid, 0)
        _write(str(os.waitstatus_to_exitcode(status)))


def _write(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _run(path: str) -> None:
    """Run the script as ``python path`` does, and end this process."""
    code = 1
    try:
        os.setsid()  # a script may kill the processes of its group
        printed = os.open(f"{path}.out", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for to, fd in enumerate((nothing, printed, printed)):
            os.dup2(fd, to)
        sys.argv = [path]
        sys.path[0] = str(Path(path).parent)
        runpy.run_path(path, run_name="__main__")
        code = 0
    except SystemExit as asked:
        code = asked.code if isinstance(asked.code, int) else 1
    except BaseException:  # noqa: BLE001 - as the interpreter does with whatever a script raises
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(code)


if __name__ == "__main__":
    main()
