"""``ClosedIds`` keeps what it was given, in few bytes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rlconform.check_run.closed_ids import ClosedIds, Fate
from rlconform.events.schema import EventSource, LogClosed, Record


def record(seq: int, rank: int = 0) -> Record:
    source = EventSource("trainer", rank, "host", 1)
    return Record(run="r", seq=seq, clock=1, mono_ns=0, wall_ns=0, source=source, event=LogClosed())


names = st.text(max_size=4)


@given(st.lists(st.tuples(names, st.sampled_from(list(Fate)), st.booleans()), max_size=200))
def test_it_is_a_dict(changes: list[tuple[str, Fate, bool]]) -> None:
    ids, model = ClosedIds(), {}
    for seq, (name, fate, removed) in enumerate(changes):
        digest = ids.add(name, fate, record(seq, seq % 3))
        model[name] = (fate, seq, seq % 3)
        if removed:
            ids.remove(digest)
            del model[name]
    for name in {name for name, _, _ in changes} | {"another"}:
        closed = ids.get(name)
        if name not in model:
            assert closed is None
        else:
            assert closed is not None
            assert closed.ended_by is not None
            place = (closed.ended_by.seq, closed.ended_by.source.rank)
            assert (closed.fate, *place) == model[name]


def test_a_closed_id_takes_at_most_64_bytes() -> None:
    ids = ClosedIds()
    for number in range(100_000):
        ids.add(f"train-{number}", Fate.TRAINED, record(number))
    assert len(ids) == 100_000
    assert ids.nbytes / len(ids) <= 64
    assert ids.get("train-99999") is not None
    assert ids.get("train-100000") is None
