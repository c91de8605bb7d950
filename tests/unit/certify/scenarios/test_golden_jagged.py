"""The golden files equal the current output and document packing without other code."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from tensordict import TensorDict
from torch import Tensor

from rlconform._resources import resource_dir
from rlconform.certify.scenarios import golden
from rlconform.certify.scenarios.rollouts import SyntheticRollout, rollout_batch
from rlconform.wire import materialize
from rlconform.wire.leaves import same_rows

FOLDER = resource_dir("fixtures") / "golden"
JAGGED = {
    path.stem: json.loads(path.read_text("utf-8")) for path in sorted(FOLDER.glob("jagged_*.json"))
}
PER_TOKEN = {name: case for name, case in JAGGED.items() if "offsets" in case}
ROLLOUT = json.loads((FOLDER / "rollout.json").read_text("utf-8"))
SMALL = json.loads((FOLDER / "rollout_small.json").read_text("utf-8"))
SMALL_COLUMNS = {name: part for name, part in SMALL.items() if "rows" in part}


def read(values: Any, dtype: torch.dtype) -> Tensor:
    """The tensor of a file's nested lists; floats from their bits."""
    if not dtype.is_floating_point:
        return torch.tensor(values, dtype=dtype)
    as_wide = {2: torch.int16, 4: torch.int32}[dtype.itemsize]
    return torch.tensor(bits_of(values)).to(as_wide).view(dtype)


def bits_of(values: Any) -> Any:
    """The bits of nested lists of ``"value bits"``."""
    if isinstance(values, list):
        return [bits_of(value) for value in values]
    return int(values.split()[1], 16)


def test_every_kind_of_column_has_a_file() -> None:
    assert {case["dtype"] for case in JAGGED.values()} >= {"int64", "int32", "bfloat16", "bool"}
    assert len(PER_TOKEN) < len(JAGGED)
    assert any(0 in case["lengths"] for case in PER_TOKEN.values())
    assert any(isinstance(case["padded"][0][0], list) for case in PER_TOKEN.values())


@pytest.mark.parametrize("name", JAGGED)
def test_packing_equals_its_golden_file(name: str) -> None:
    cases = {f"jagged_{case}": content for case, content in golden.jagged_cases().items()}
    assert JAGGED.keys() == cases.keys()
    assert JAGGED[name] == cases[name]


@pytest.mark.parametrize("case", PER_TOKEN.values(), ids=PER_TOKEN)
def test_the_values_are_each_rows_first_tokens(case: dict[str, Any]) -> None:
    """This check uses only the file, without a tensor."""
    offsets, lengths = case["offsets"], case["lengths"]
    rows = [case["values"][a:b] for a, b in pairwise(offsets)]
    assert rows == [row[:length] for row, length in zip(case["padded"], lengths, strict=True)]
    assert offsets[-1] == len(case["values"])


@pytest.mark.parametrize("case", PER_TOKEN.values(), ids=PER_TOKEN)
def test_the_values_pad_back(case: dict[str, Any]) -> None:
    dtype = getattr(torch, case["dtype"])
    padded = read(case["padded"], dtype)
    empty = padded.new_empty(0, *padded.shape[2:])
    values = read(case["values"], dtype) if case["values"] else empty
    nested = torch.nested.nested_tensor_from_jagged(values, torch.tensor(case["offsets"]))
    batch = TensorDict({"column": nested}, [len(case["lengths"])])
    back = materialize(batch, "padded", {"column": case["pad_value"]}, padded.shape[1])["column"]
    assert back.dtype == dtype
    assert golden.as_json(back) == case["padded"]


def test_a_per_sample_column_is_left_as_it_is() -> None:
    dense = {name: case for name, case in JAGGED.items() if name not in PER_TOKEN}
    assert [case["dense"] for case in dense.values()] == [c["padded"] for c in dense.values()]


@pytest.mark.parametrize("part", sorted(ROLLOUT.keys() - {"arguments"}))
def test_a_rollout_equals_its_golden_file(part: str) -> None:
    digests = golden.rollout_digests(rollout_batch(**ROLLOUT["arguments"]))
    assert sorted(digests) == sorted(ROLLOUT.keys() - {"arguments"})
    assert digests[part] == ROLLOUT[part]


@pytest.fixture(scope="module")
def small() -> SyntheticRollout:
    return rollout_batch(**SMALL["arguments"])


@pytest.mark.parametrize("part", sorted(SMALL.keys() - {"arguments"}))
def test_each_part_of_a_small_rollout_equals_its_golden_file(
    part: str, small: SyntheticRollout
) -> None:
    now = json.loads(json.dumps(golden.rollout_contents(small)))
    assert now.keys() == SMALL.keys() - {"arguments"}
    rows = zip(*(_rows(held[part]) for held in (now, SMALL)), strict=True)
    unlike = {row: {"now": new, "file": old} for row, (new, old) in enumerate(rows) if new != old}
    assert unlike == {}, f"rows of {part}"
    assert now[part] == SMALL[part]


@pytest.mark.parametrize("name", SMALL_COLUMNS)
def test_a_small_rollouts_columns_can_be_made_from_the_file_alone(
    name: str, small: SyntheticRollout
) -> None:
    held = SMALL_COLUMNS[name]
    column = read(held["rows"], getattr(torch, held["dtype"]))
    assert list(column.shape[1:]) == held["row_shape"]
    assert same_rows(column, small.columns[name])


def test_the_small_rollout_is_like_one_of_production() -> None:
    rows = {name: held["rows"] for name, held in SMALL_COLUMNS.items()}
    kinds = {name: held["dtype"] for name, held in SMALL_COLUMNS.items()}
    assert kinds["input_ids"] == "int64"
    assert kinds["generation_logprobs"] == kinds["pixel_values"] == "bfloat16"
    assert kinds["token_mask"] == kinds["sample_mask"] == "int32"
    assert kinds["total_reward"] == "float32"
    assert [tag["input_lengths"] for tag in SMALL["tags"]] == rows["input_lengths"]
    assert {tag["weight_version"] for tag in SMALL["tags"]} == {3}
    assert [tag["std"] == 0 for tag in SMALL["tags"]] == [False, False, True, True]
    truncated = [tag["truncated"] for tag in SMALL["tags"]]
    assert sum(truncated) == sum(not any(mask) for mask in rows["token_mask"]) == 1
    for log, length in zip(SMALL["message_logs"], rows["input_lengths"], strict=True):
        spans = [message["token_span"] for message in log]
        assert [start for start, _ in spans] + [length] == [0] + [sum(span) for span in spans]
    assert len((FOLDER / "rollout_small.json").read_bytes()) < 30_000


def _rows(part: Any) -> list[Any]:
    """A part's entries, one per row."""
    return list(part["rows"] if isinstance(part, dict) else part)


def test_digests_of_different_layouts_of_the_same_bytes_differ() -> None:
    flat, column = torch.zeros(4), torch.zeros(4, 1)
    digests = {golden._digest_of(leaf) for leaf in (flat, column, flat.int())}
    assert len(digests) == 3


def test_the_command_compares_and_writes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    into = ["--into", str(tmp_path)]
    assert golden.main(into) == 1
    assert golden.main([*into, "--write"]) == 0
    assert golden.main(into) == 0
    assert {path.name for path in tmp_path.iterdir()} == {*golden.golden_files()}
    (tmp_path / "jagged_bool.json").write_text("{}", "utf-8")
    capsys.readouterr()
    assert golden.main(into) == 1
    assert "jagged_bool.json: differs from the output" in capsys.readouterr().out


def test_the_stored_files_are_what_the_command_writes() -> None:
    assert golden.main([]) == 0
