"""``check-r3``: right traces pass, each change of a trace is named in one sentence."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from rlconform.cli import app
from rlconform.contract import ConfigError
from rlconform.grpo.router_replay.check import check_trace
from rlconform.grpo.router_replay.trace_records import (
    Fetched,
    Hashes,
    Passed,
    Produced,
    Replayed,
    TraceRank,
    TraceRecord,
    Wrote,
    pack_hashes,
    read_trace,
)
from rlconform.grpo.simulation.replay_step import REPLAY_SCENARIOS

TOKENS, LAYERS = 5, 3


def hashes(seed: int = 0) -> Hashes:
    return np.random.default_rng(seed).integers(2, 2**32, (TOKENS, LAYERS), dtype=np.uint32)


def token_ids() -> Hashes:
    return np.arange(100, 100 + TOKENS, dtype=np.uint32)


def of(values: Hashes, ids: Hashes | None = None, sample: str = "a") -> dict[str, Any]:
    ids = token_ids()[: len(values)] if ids is None else ids
    packed, tokens = pack_hashes(values), pack_hashes(ids)
    return {
        "sample_id": sample, "layers": values.shape[1], "packed": packed, "packed_tokens": tokens,
    }  # fmt: skip


def call(rank: TraceRank | None = None, stage: str = "train") -> dict[str, Any]:
    return {"run": "r", "rank": rank or TraceRank(dp=0), "stage": stage, "call": 0}


def produced(values: Hashes | None = None, dtype: str = "torch.uint8") -> Produced:
    values = last_missing() if values is None else values
    return Produced(run="r", dtype=dtype, top_k=2, **of(values))


def last_missing() -> Hashes:
    values = hashes()
    values[-1] = 0
    return values


def fetched(values: Hashes | None = None, rank: TraceRank | None = None, width: int = 8) -> Fetched:
    values = last_missing() if values is None else values
    return Fetched(dtype="torch.uint8", width=width, **of(values), **call(rank))


def replayed(values: Hashes | None = None, rank: TraceRank | None = None, **more: Any) -> Replayed:
    return Replayed(
        microbatch=0, **of(hashes() if values is None else values), **call(rank), **more
    )


def passed(rank: TraceRank | None = None, microbatches: int = 1) -> Passed:
    return Passed(microbatches=microbatches, **call(rank))


def right() -> list[TraceRecord]:
    wrote = Wrote(run="r", rank=TraceRank(dp=0), column="prev_logprobs", sample_ids=("a",))
    return [produced(), fetched(), replayed(), passed(), wrote]


def failures(records: list[TraceRecord]) -> tuple[str, ...]:
    return check_trace(records).failures


def test_a_right_trace_passes() -> None:
    assert check_trace(right()) == (1, TOKENS, ())


TP1 = TraceRank(dp=0, tp=1)
PP1 = TraceRank(dp=0, pp=1)


def test_stages_and_sequence_parallel_ranks_cover_a_row_together() -> None:
    first, second = hashes()[:, :2], hashes()[:, 2:]
    stages = [
        produced(), fetched(), fetched(rank=PP1), passed(), passed(PP1),
        replayed(first), replayed(second, PP1, first_layer=2),
    ]  # fmt: skip
    assert failures(stages) == ()
    top, rest = hashes()[:3], hashes()[3:]
    halves = [
        produced(), fetched(), fetched(rank=TP1), passed(), passed(TP1), replayed(top),
        Replayed(microbatch=0, first_token=3, **of(rest, token_ids()[3:]), **call(TP1)),
    ]  # fmt: skip
    assert failures(halves) == ()
    assert "got none for token 3 in layer 0" in failures(halves[:-1])[0]
    assert "got none for token 0 in layer 2" in failures(stages[:-1])[0]


def swapped() -> Hashes:
    values = hashes()
    values[[1, 2]] = values[[2, 1]]
    return values


CHANGES: dict[str, tuple[Callable[[], list[TraceRecord]], str]] = {
    "empty": (list, "proves nothing"),
    "no producer": (lambda: right()[1:], "nobody has produced"),
    "shifted": (
        lambda: [*right()[:2], replayed(np.roll(hashes(), 1, axis=0)), *right()[3:]],
        "those of the token before for token 0",
    ),
    "two tokens swapped": (
        lambda: [*right()[:2], replayed(swapped()), *right()[3:]], "for token 1 in layer 0",
    ),
    "next layer": (
        lambda: [*right()[:2], replayed(np.roll(hashes(), 1, axis=1)), *right()[3:]],
        "those of another layer",
    ),
    "another token in its place": (
        lambda: [
            *right()[:2], Replayed(microbatch=0, **of(hashes(), token_ids()[::-1]), **call()),
            *right()[3:],
        ],
        "got another token in its place",
    ),
    "changed by the plane": (
        lambda: [produced(), fetched(np.roll(last_missing(), 1, axis=1)), replayed(), passed()],
        "those of another layer for token 0 in layer 0 from the plane",
    ),
    "tokens of another row": (
        lambda: [
            produced(), replayed(), passed(),
            Fetched(dtype="torch.uint8", width=8, **of(last_missing(), token_ids() + 1), **call()),
        ],
        "expected the tokens that were produced",
    ),
    "dtype": (lambda: [produced(dtype="torch.int16"), *right()[1:]], "expected torch.int16"),
    "cut": (
        lambda: [produced(), fetched(last_missing()[:3]), replayed(hashes()[:3]), passed()],
        "got (3, 3) fetched",
    ),
    "a hole": (
        lambda: [produced(np.where(np.arange(5)[:, None] == 2, 0, hashes()).astype(np.uint32))],
        "got no experts for token 2",
    ),
    "invalid experts": (
        lambda: [produced(np.where(np.arange(5)[:, None] == 0, 1, hashes()).astype(np.uint32))],
        "got invalid experts for token 0",
    ),
    "twice": (lambda: [*right(), replayed()], "token 0 in layer 0 2 times"),
    "recomputed twice": (
        lambda: [*right(), replayed(recomputed=True), replayed(recomputed=True)],
        "to be recomputed once",
    ),
    "recomputed otherwise": (
        lambda: [*right(), replayed(hashes(1), recomputed=True)],
        "in the routers when recomputed",
    ),
    "a row that was not fetched": (
        lambda: [*right(), Replayed(microbatch=0, **of(hashes(), sample="b"), **call())],
        "expected a row that the rank has fetched",
    ),
    "not replayed": (lambda: [*right()[:2], passed()], "expected every token to be replayed"),
    "no end": (lambda: [*right()[:3]], "expected rank dp=0 to end it"),
    "widths": (
        lambda: [*right(), fetched(rank=TP1, width=9), replayed(rank=TP1), passed(TP1)],
        "expected one width on all ranks; got 8 on rank dp=0, 9 on rank dp=0 tp=1",
    ),
    "micro-batches": (
        lambda: [*right(), fetched(rank=TP1), replayed(rank=TP1), passed(TP1, 2)],
        "expected equally many micro-batches; got 1 on rank dp=0, 2 on rank dp=0 tp=1",
    ),
    "two writers": (
        lambda: [*right(), right()[-1].model_copy(update={"rank": TP1})],
        "expected prev_logprobs to be written once",
    ),
    "a writer that is not the first rank": (
        lambda: [*right()[:-1], right()[-1].model_copy(update={"rank": PP1})],
        "by a rank with tp = cp = pp = 0; got rank dp=0 pp=1",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CHANGES)
def test_each_change_is_named(name: str) -> None:
    change, sentence = CHANGES[name]
    found = failures(change())
    assert any(sentence in one for one in found), found
    assert all("\n" not in one for one in found)


def test_a_row_that_is_produced_again_may_equal_either() -> None:
    again = [produced(np.where(last_missing() > 0, hashes(1), 0).astype(np.uint32)), *right()]
    assert failures(again) == ()
    assert failures(again[::-1]) == ()


# -- the command -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trace")
    REPLAY_SCENARIOS["replay packed"].run(folder)
    return folder


def check(path: Path) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["check-r3", str(path)])
    return result.exit_code, result.output


def test_the_command_succeeds_on_a_right_trace(trace: Path) -> None:
    code, says = check(trace)
    assert code == 0, says
    assert "of 16 rows: no failures" in says


def test_the_command_fails_on_a_wrong_trace(trace: Path, tmp_path: Path) -> None:
    records = read_trace(trace)
    wrong = next(record for record in records if isinstance(record, Replayed))
    flipped = wrong.model_copy(update={"packed": pack_hashes(wrong.hashes[::-1])})
    lines = [flipped if record is wrong else record for record in records]
    file = tmp_path / "r3-all.jsonl"
    file.write_text("".join(record.model_dump_json() + "\n" for record in lines), "utf-8")
    code, says = check(file)
    assert code == 1
    assert f"FAIL {wrong.sample_id}, call 0 of" in " ".join(says.split())


@pytest.mark.parametrize("text", ["", "{}\n", "no json\n", '{"kind": "passed"}\n'])
def test_the_command_says_where_a_file_is_no_trace(tmp_path: Path, text: str) -> None:
    file = tmp_path / "r3-x.jsonl"
    file.write_text(text, "utf-8")
    code, says = check(file)
    assert code == (1 if not text else 2)
    assert ("proves nothing" if not text else "r3-x.jsonl:1") in "".join(says.split("\n"))


def test_hashes_of_another_number_of_tokens_are_no_record(tmp_path: Path) -> None:
    record = produced().model_copy(update={"packed_tokens": pack_hashes(token_ids()[:2])})
    file = tmp_path / "r3-x.jsonl"
    file.write_text(record.model_dump_json(), "utf-8")
    with pytest.raises(ConfigError, match="2 tokens with the experts of 5"):
        read_trace(file)


def test_a_folder_without_a_trace_is_refused(tmp_path: Path) -> None:
    assert check(tmp_path)[0] == 2
    assert check(tmp_path / "nowhere")[0] == 2
