"""The worker server forks programs with their own arguments, environment, folder and files."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from rlconform._env import FORK_WORKERS
from rlconform.backends import ray_worker, ray_worker_server
from rlconform.backends.ray_worker import WORKER_SERVER
from rlconform.backends.ray_worker_server import forked_workers, start_separate_server
from rlconform.backends.worker_pids import next_worker_like

#: A program in a worker's place: it prints how it runs, and ends with status 3 when told to.
PROGRAM = """
import json, os, sys
print(json.dumps({
    "parent": os.getppid(), "arguments": sys.argv[1:], "folder": os.getcwd(),
    "name": __name__, "said": os.environ.get("SAID"), "preloaded": "colorsys" in sys.modules,
    "open": [int(fd) for fd in os.listdir("/proc/self/fd")],
}), flush=True)
sys.stdin.read()
sys.exit(3)
"""


@contextmanager
def serving(monkeypatch: pytest.MonkeyPatch, module: str) -> Iterator[psutil.Process]:
    """Run a server whose workers have a module."""
    monkeypatch.setenv(WORKER_SERVER, "")
    monkeypatch.setattr(ray_worker_server, "_SERVERS", [])
    start_separate_server([module])
    (pid,) = ray_worker_server._SERVERS
    process = psutil.Process(pid)
    yield process
    with suppress(psutil.NoSuchProcess):  # a test has killed it
        process.kill()
        process.wait()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[psutil.Process]:
    """A server whose workers have a module that nothing else imports."""
    with serving(monkeypatch, "colorsys") as process:
        yield process


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """The program that runs in Ray's place."""
    path = tmp_path / "program.py"
    path.write_text(PROGRAM, "utf-8")
    return path


def launched(program: Path, **environment: str) -> subprocess.Popen[str]:
    """Start ``ray_worker`` as Ray does, but for this program."""
    code = (
        "import sys; from rlconform.backends import ray_worker as w; "
        f"w.ray_program = lambda: {str(program)!r}; sys.argv = ['w', '--one', 'two']; w.main()"
    )
    return subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=program.parent,
        env=os.environ | {"SAID": "here"} | environment,
        text=True,
    )


def told(worker: subprocess.Popen[str]) -> dict[str, Any]:
    """Return what the program prints."""
    assert worker.stdout is not None
    line: dict[str, Any] = json.loads(worker.stdout.readline())
    return line


def test_a_server_that_has_ray_forks_for_one_raylet(
    monkeypatch: pytest.MonkeyPatch, program: Path
) -> None:
    """Ray keeps the pid that it read when it was loaded, and ends with the raylet of that pid."""
    with serving(monkeypatch, "ray") as server:
        parents = []
        for pid in ("7", "8", "7"):
            worker = launched(program, RAY_RAYLET_PID=pid)
            parents.append(told(worker)["parent"])
            worker.communicate(timeout=30)
    assert parents == [server.pid, os.getpid(), server.pid]


def test_a_worker_is_a_fork_that_runs_like_a_new_process(
    server: psutil.Process, program: Path
) -> None:
    worker = launched(program)
    found = told(worker)
    assert found["parent"] == server.pid
    assert found["preloaded"]
    assert (found["arguments"], found["folder"]) == (["--one", "two"], str(program.parent))
    assert (found["name"], found["said"]) == ("__main__", "here")
    assert len([fd for fd in found["open"] if fd > 2]) == 1, "only that of the listing itself"
    (forked,) = forked_workers()
    assert worker.stdin is not None
    worker.stdin.close()
    psutil.wait_procs([forked], timeout=30)
    assert forked_workers() == []
    assert worker.wait(30) == 0


def test_the_next_worker_has_the_low_bits_of_a_pid(server: psutil.Process, program: Path) -> None:
    """The worker after it has any pid: to use pids up takes a tenth of a second."""
    like = os.getpid()
    assert next_worker_like(like)
    pids = []
    for _ in range(2):
        worker = launched(program)
        assert told(worker)["parent"] == server.pid
        pids += [each.pid for each in forked_workers() if each.pid not in pids]
        worker.communicate(timeout=30)
    assert [(pid - like) % 4096 == 0 for pid in pids] == [True, False]


def test_no_worker_is_promised_without_the_server(server: psutil.Process) -> None:
    server.kill()
    server.wait()
    assert not next_worker_like(os.getpid())


@pytest.mark.parametrize("variable", ["OMP_NUM_THREADS", "PYTHONPATH", "RLCONFORM_RUN"])
def test_a_worker_with_another_start_is_not_forked(
    server: psutil.Process, program: Path, variable: str
) -> None:
    other = os.pathsep.join([os.environ.get("PYTHONPATH", ""), "/else"])
    worker = launched(program, **{variable: other if variable == "PYTHONPATH" else "7"})
    found = told(worker)
    assert found["parent"] == os.getpid() != server.pid
    assert not found["preloaded"]
    worker.communicate(timeout=30)
    assert worker.returncode == 3


def test_a_worker_starts_without_the_server(server: psutil.Process, program: Path) -> None:
    server.kill()
    server.wait()
    worker = launched(program)
    assert told(worker)["parent"] == os.getpid()
    worker.communicate(timeout=30)


def test_a_killed_worker_leaves_the_server_running(server: psutil.Process, program: Path) -> None:
    told(launched(program))
    (forked,) = forked_workers()
    forked.send_signal(signal.SIGKILL)
    psutil.wait_procs([forked], timeout=30)
    assert told(launched(program))["parent"] == server.pid


def test_the_server_ends_with_the_process_that_started_it() -> None:
    code = (
        "from rlconform.backends import ray_worker_server as s; s.start_worker_server(['colorsys'])"
        "; print(s._SERVERS[0], flush=True); import os; os.kill(os.getpid(), 9)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL
    _, left = psutil.wait_procs([*_existing(int(done.stdout))], timeout=30)
    assert left == []


def _existing(pid: int) -> Iterator[psutil.Process]:
    if psutil.pid_exists(pid):
        yield psutil.Process(pid)


def test_no_server_is_started_if_workers_must_be_new_processes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(FORK_WORKERS, "0")
    monkeypatch.setenv(WORKER_SERVER, "")
    monkeypatch.setattr(ray_worker_server, "_SERVERS", [])
    start_separate_server(["colorsys"])
    assert ray_worker_server._SERVERS == []
    assert os.environ[WORKER_SERVER] == ""


def test_another_user_gets_no_worker(server: psutil.Process, program: Path) -> None:
    assert server.is_running()
    if os.getuid() != 0:
        pytest.skip("only root can become another user")
    program.chmod(0o644)
    pid = os.fork()
    if pid == 0:
        os.setuid(65534)
        os._exit(int(ray_worker.ask(os.environ[WORKER_SERVER], str(program))))
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert forked_workers() == []
