"""``LogReader`` merges files in causal order and notes what is wrong with them."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from rlconform.events.reader import DefectKind, LogReader, log_files
from rlconform.events.schema import EventSource, LogClosed, Record, Segment

SOURCES = [EventSource("rollout", number, "a", 10 + number) for number in range(3)]


def record(seq: int, clock: int, source: EventSource = SOURCES[0], run: str = "r1") -> Record:
    event = Segment(group_id="g", row=0, weight_version=1, tokens=5)
    return Record(
        run=run, seq=seq, clock=clock, mono_ns=clock, wall_ns=clock, source=source, event=event
    )


def written(folder: Path, *records: Record, name: str = "a-1", closed: bool = True) -> Path:
    lines = list(records)
    if closed:
        last = records[-1]
        end = msgspec.structs.replace(
            last, seq=last.seq + 1, clock=last.clock + 1, event=LogClosed()
        )
        lines.append(end)
    path = folder / f"events-{name}.jsonl"
    path.write_bytes(b"".join(msgspec.json.encode(one) + b"\n" for one in lines))
    return path


def defects(folder: Path) -> list[str]:
    reader = LogReader(log_files([folder]))
    list(reader)
    return [defect.kind.value for defect in reader.defects]


@pytest.mark.parametrize("piece_bytes", [1, 100, 1000, 1 << 20])
def test_files_are_merged_by_clock(tmp_path: Path, piece_bytes: int) -> None:
    for number, source in enumerate(SOURCES):
        clocks = range(number, 300, number + 2)
        own = [record(seq, clock, source) for seq, clock in enumerate(clocks)]
        written(tmp_path, *own, name=f"rollout-{number}")
    reader = LogReader(log_files([tmp_path]), piece_bytes)
    clocks = [one.clock for one in reader]
    assert clocks == sorted(clocks)
    assert len(clocks) == sum(info.records for info in reader.files) == 150 + 100 + 75 + 3
    assert reader.defects == []


def test_a_file_far_ahead_waits_for_the_others(tmp_path: Path) -> None:
    written(tmp_path, *[record(n, n) for n in range(500)], name="a-1")
    written(tmp_path, *[record(n, 10**6 + n, SOURCES[1]) for n in range(500)], name="b-2")
    clocks = [one.clock for one in LogReader(log_files([tmp_path]), 2000)]
    assert clocks == sorted(clocks)


def test_a_whole_file_has_no_defect(tmp_path: Path) -> None:
    written(tmp_path, record(0, 1), record(1, 2))
    assert defects(tmp_path) == []


def test_a_gap_is_noted(tmp_path: Path) -> None:
    written(tmp_path, record(0, 1), record(2, 2), record(5, 3))
    reader = LogReader(log_files([tmp_path]))
    list(reader)
    said = [defect.message for defect in reader.defects]
    assert said == ["seq 1 is missing", "seq 3 to 4 is missing"]


def test_a_missing_begin_is_a_gap(tmp_path: Path) -> None:
    written(tmp_path, record(1, 1))
    assert defects(tmp_path) == ["gap"]


def test_a_file_that_ends_within_a_line_is_noted(tmp_path: Path) -> None:
    path = written(tmp_path, record(0, 1), record(1, 2), closed=False)
    path.write_bytes(path.read_bytes()[:-30])
    assert defects(tmp_path) == ["torn_line", "not_closed"]


def test_a_file_without_its_last_lines_is_noted(tmp_path: Path) -> None:
    written(tmp_path, record(0, 1), closed=False)
    assert defects(tmp_path) == ["not_closed"]


def test_what_is_no_record_is_noted(tmp_path: Path) -> None:
    path = written(tmp_path, record(0, 1), record(1, 2))
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([lines[0], b"not JSON\n", *lines[1:]]))
    reader = LogReader(log_files([tmp_path]))
    assert len(list(reader)) == 3
    assert [(d.kind.value, d.line) for d in reader.defects] == [("unreadable", 2)]


@pytest.mark.parametrize(
    ("before", "after", "kind"),
    [
        (b'"schema":1', b'"schema":2', "unknown_version"),
        (b'"type":"segment"', b'"type":"teleported"', "unknown_event"),
        (b'"tokens":5', b'"tokens":5,"colour":1', "unreadable"),
        (b'"tokens":5', b'"tokens":"5"', "unreadable"),
        (b'"tokens":5', b'"tokens":-5', "unreadable"),
        (b'"clock":1,', b"", "unreadable"),
    ],
)
def test_a_line_of_another_schema_is_noted(
    tmp_path: Path, before: bytes, after: bytes, kind: str
) -> None:
    path = written(tmp_path, record(0, 1))
    lines = path.read_bytes()
    assert before in lines
    path.write_bytes(lines.replace(before, after, 1))
    assert defects(tmp_path)[0] == kind


def test_a_clock_that_does_not_grow_is_noted(tmp_path: Path) -> None:
    written(tmp_path, record(0, 5), record(1, 5))
    assert "clock" in defects(tmp_path)


def test_lines_of_several_processes_in_a_file_are_noted(tmp_path: Path) -> None:
    written(
        tmp_path, record(0, 1), record(1, 2), record(0, 3, SOURCES[1]), record(1, 4, SOURCES[1])
    )
    assert "repeated" in defects(tmp_path)


def test_files_of_another_run_are_noted(tmp_path: Path) -> None:
    written(tmp_path, record(0, 1), name="a-1")
    written(tmp_path, record(0, 2, SOURCES[1], run="r2"), name="b-2")
    assert defects(tmp_path) == ["other_run"]


@pytest.mark.parametrize("missing", ["nothing", "empty"])
def test_a_path_without_events_is_refused(tmp_path: Path, missing: str) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match=missing):
        log_files([tmp_path / missing])


def test_clocks_that_go_back_in_a_large_file_do_not_stop_the_reader(tmp_path: Path) -> None:
    """Once it waited for ever for a record whose clock is no higher than that of the last one."""
    source = EventSource("trainer", 0, "host", 1)
    records = [
        Record(
            run="r", seq=seq, clock=clock, mono_ns=0, wall_ns=0, source=source, event=LogClosed()
        )
        for seq, clock in enumerate((9, 8, 7))
    ]
    path = tmp_path / "events-trainer-1.jsonl"
    lines = [msgspec.json.encode(one) + b"\n" for one in records]
    path.write_bytes(b"".join(lines) + lines[-1])
    reader = LogReader([path], piece_bytes=len(b"".join(lines)) + 1)
    assert sorted(record.seq for record in reader) == [0, 1, 2, 2]
    assert DefectKind.CLOCK in {one.kind for one in reader.defects}
