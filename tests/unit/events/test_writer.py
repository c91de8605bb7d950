"""``EventWriter`` writes whole lines, from threads and forked children, and never raises."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
from pathlib import Path

import msgspec
import numpy as np
import pytest

from rlconform.events import EventWriter, LogReader
from rlconform.events.reader import log_files
from rlconform.events.schema import Idle, IdleCause, LogClosed, Record, Segment, Trained


def read(path: Path | None) -> list[Record]:
    assert path is not None
    return msgspec.json.Decoder(Record).decode_lines(path.read_bytes())


def test_a_line_is_there_when_write_returns(tmp_path: Path) -> None:
    writer = EventWriter(tmp_path, run="r1", role="trainer", rank=3)
    writer.write(Trained(group_id="g", rows=[0, 1], step=1, version=0))
    (record,) = read(writer.path)
    assert record.event == Trained(group_id="g", rows=[0, 1], step=1, version=0)
    assert (record.run, record.seq, record.source) == ("r1", 0, writer.source)
    assert (record.source.role, record.source.rank, record.source.pid) == (
        "trainer",
        3,
        os.getpid(),
    )
    assert writer.path == tmp_path / f"events-trainer-{os.getpid()}.jsonl"
    writer.close()
    assert read(writer.path)[-1].event == LogClosed()


def test_the_clock_grows_and_passes_what_was_observed(tmp_path: Path) -> None:
    with EventWriter(tmp_path, run="r1", role="a") as writer:
        for _ in range(100):
            writer.write(Segment(group_id="g", row=0, weight_version=1, tokens=5))
        ahead = writer.stamp() + 10**12
        writer.observe(ahead)
        writer.write(Segment(group_id="g", row=0, weight_version=1, tokens=5))
        assert writer.stamp() == ahead + 1
        writer.observe(5)
        assert writer.stamp() == ahead + 1
    clocks = [record.clock for record in read(writer.path)]
    assert clocks == sorted(set(clocks))


def test_threads_share_a_writer(tmp_path: Path) -> None:
    with EventWriter(tmp_path, run="r1", role="a") as writer:

        def write() -> None:
            for row in range(200):
                writer.write(Segment(group_id="g", row=row, weight_version=1, tokens=5))

        threads = [threading.Thread(target=write) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    reader = LogReader(log_files([tmp_path]))
    assert len(list(reader)) == 801
    assert reader.defects == []


def test_processes_of_the_same_role_and_pid_have_files_of_their_own(tmp_path: Path) -> None:
    first, second = (EventWriter(tmp_path, run="r1", role="a") for _ in range(2))
    with first, second:
        assert first.path != second.path
        assert (first.source.incarnation, second.source.incarnation) == (0, 1)


def test_a_forked_child_writes_its_own_file(tmp_path: Path) -> None:
    code = (
        "import os, sys; from rlconform.events import EventWriter\n"
        "from rlconform.events.schema import Idle, IdleCause\n"
        "writer = EventWriter(sys.argv[1], run='r1', role='a')\n"
        "event = Idle(who='trainer', seconds=1, cause=IdleCause.GATE)\n"
        "writer.write(event)\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    writer.write(event); writer.close(); os._exit(0)\n"
        "os.waitpid(child, 0); writer.write(event)\n"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True, timeout=60)
    reader = LogReader(log_files([tmp_path]))
    assert sorted(info.records for info in reader.files) == [0, 0]
    assert len(list(reader)) == 5  # 1 + its last line, 2 + its last line
    assert reader.defects == []  # the parent's file is closed at its exit


def test_without_a_folder_nothing_is_written() -> None:
    with EventWriter(None, run="r1", role="a") as writer:
        writer.write(Idle(who="trainer", seconds=1, cause=IdleCause.GATE))
        assert (writer.path, writer.lost) == (None, 0)


def test_a_folder_that_can_not_be_written_does_not_stop_the_run(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with EventWriter(tmp_path / "file" / "events", run="r1", role="a") as writer:
        writer.write(Idle(who="trainer", seconds=1, cause=IdleCause.GATE))


def test_what_can_not_be_written_is_a_gap_and_is_counted(tmp_path: Path) -> None:
    with EventWriter(tmp_path, run="r1", role="a") as writer:
        writer.write(Segment(group_id="g", row=0, weight_version=1, tokens=5))
        writer.write(Segment(group_id=object(), row=0, weight_version=1, tokens=5))  # type: ignore[arg-type]
        writer.write(Segment(group_id="g", row=1, weight_version=1, tokens=5))
        assert writer.lost == 1
    records = read(writer.path)
    assert [record.seq for record in records] == [0, 2, 3]
    closed = records[-1].event
    assert isinstance(closed, LogClosed)
    assert closed.lost == 1
    assert "object" in str(closed.last_error)


def test_a_line_that_is_cut_by_a_full_disk_does_not_spoil_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written, real = [], os.write

    def full(fd: int, data: bytes) -> int:
        written.append(data)
        if len(written) == 1:
            return real(fd, data[:40])
        if len(written) == 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(fd, data)

    writer = EventWriter(tmp_path, run="r1", role="a")
    monkeypatch.setattr(os, "write", full)
    for row in range(3):
        writer.write(Segment(group_id="g", row=row, weight_version=1, tokens=5))
    monkeypatch.undo()
    writer.close()
    assert writer.lost == 1
    reader = LogReader(log_files([tmp_path]))
    assert [record.seq for record in reader] == [1, 2, 3]
    assert {defect.kind.value for defect in reader.defects} == {"unreadable", "gap", "events_lost"}


def test_numbers_of_numpy_are_written_as_numbers(tmp_path: Path) -> None:
    with EventWriter(tmp_path, run="r1", role="a") as writer:
        event = Segment(group_id="g", row=np.int64(3), weight_version=np.int32(1), tokens=5)  # type: ignore[arg-type]
        writer.write(event)
    assert read(writer.path)[0].event == Segment(group_id="g", row=3, weight_version=1, tokens=5)


def test_the_package_imports_neither_torch_nor_ray() -> None:
    code = (
        "import sys, rlconform.events, rlconform.events.perfetto, rlconform.check_run.judge\n"
        "print(sorted({'ray', 'torch', 'tensordict', 'numpy', 'pydantic'} & set(sys.modules)))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert ran.stdout == "[]\n"
