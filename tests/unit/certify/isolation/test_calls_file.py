"""The calls of a check outlive its process, as far as they were written."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rlconform.certify.isolation.calls_file import CallsFile, read_calls
from rlconform.certify.reproduce.render import Call

CHECK = "unit/contract/test_put.py::test_one"
PUT = Call("client", "client.put_samples()", "r0 = attempt(client.put_samples())", number=0)
GET = Call("client", "client.get_samples()", "", ("another",), 1, (0,), 0.25, True)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "calls.jsonl"


@pytest.fixture
def calls(path: Path) -> CallsFile:
    """Return a file in which the check has begun."""
    made = CallsFile(str(path))
    made.restart(CHECK)
    return made


def test_calls_are_read_in_the_order_in_which_they_were_made(calls: CallsFile, path: Path) -> None:
    calls.write(PUT)
    calls.write(GET)
    first, second = read_calls(path, CHECK)
    assert (first.text, first.source) == (PUT.text, PUT.source)
    assert second.describe() == GET.describe()
    assert (second.at, second.after_reopen) == (GET.at, GET.after_reopen)


def test_a_new_check_has_only_its_own_calls(calls: CallsFile, path: Path) -> None:
    calls.write(PUT)
    calls.restart(CHECK)
    assert list(read_calls(path, CHECK)) == []
    calls.write(GET)
    assert [call.text for call in read_calls(path, CHECK)] == [GET.text]


def test_a_check_has_no_calls_of_the_next_one(calls: CallsFile, path: Path) -> None:
    calls.write(PUT)
    calls.restart("the next check")
    calls.write(GET)
    assert list(read_calls(path, CHECK)) == []


def test_a_file_that_no_check_has_begun_has_no_calls(path: Path) -> None:
    path.touch()
    assert list(read_calls(path, CHECK)) == []


def test_a_line_that_was_cut_short_is_no_call_and_hides_none(calls: CallsFile, path: Path) -> None:
    calls.write(PUT)
    with path.open("ab") as file:
        file.write(b'\n{"who": "client", "te')
    assert [call.text for call in read_calls(path, CHECK)] == [PUT.text]
    calls.write(GET)
    assert [call.text for call in read_calls(path, CHECK)] == [PUT.text, GET.text]


def test_a_file_of_the_plane_under_the_same_number_is_left_alone(
    calls: CallsFile, path: Path
) -> None:
    calls.write(PUT)
    opened = os.stat(path).st_ino
    (mine,) = (int(fd) for fd in os.listdir("/proc/self/fd") if _inode(fd) == opened)
    other = path.with_name("other")
    file = os.open(other, os.O_RDWR | os.O_CREAT)
    os.dup2(file, mine)
    calls.write(GET)
    calls.restart(CHECK)
    assert other.read_bytes() == b""
    assert [call.text for call in read_calls(path, CHECK)] == [PUT.text]
    os.close(mine)
    os.close(file)


def test_without_a_path_nothing_is_written(tmp_path: Path) -> None:
    calls = CallsFile(None)
    calls.restart(CHECK)
    calls.write(PUT)
    calls.restart(CHECK)
    assert list(tmp_path.iterdir()) == []


def _inode(fd: str) -> int:
    try:
        return os.fstat(int(fd)).st_ino
    except OSError:
        return -1
