"""Golden files: stored outputs of the codec and of the synthetic rollouts.

    python -m rlconform.certify.scenarios.golden           compare the files with the output
    python -m rlconform.certify.scenarios.golden --write   write them again

A jagged file is self-contained, so that a codec in another language can be tested with it:
packing ``padded`` by ``lengths`` gives ``offsets`` and ``values``, and padding those with
``pad_value`` gives ``padded`` again. Floats are written as their value and their bits.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from tensordict import TensorDict
from torch import Tensor

from rlconform._resources import resource_dir
from rlconform.certify.scenarios.rollouts import SyntheticRollout, rollout_batch
from rlconform.wire import pack_jagged_fields, strip_message_logs
from rlconform.wire.leaves import is_jagged, jagged_parts

LENGTHS = (3, 0, 5, 1)

#: Float patterns that get lost easily: a NaN with a payload, -0.0, infinity, a subnormal.
ODD_BFLOAT16 = (0x7FC1, -0x8000, 0x7F80, 0x0001)

#: The rollout of which only digests are stored: groups, aborted rows, turns, images.
ROLLOUT: dict[str, Any] = {
    "n_prompts": 6,
    "group_size": 4,
    "seed": 11,
    "min_tokens": 8,
    "max_tokens": 64,
    "aborted": 2,
    "weight_version": 3,
    "width_multiple": 8,
    "image_shape": [3, 2, 2],
}

#: The rollout that is stored whole: an aborted row, a truncated one, a group of zero std.
SMALL_ROLLOUT: dict[str, Any] = {
    "n_prompts": 2,
    "group_size": 2,
    "seed": 8,
    "min_tokens": 4,
    "max_tokens": 9,
    "max_turns": 2,
    "aborted": 1,
    "weight_version": 3,
    "width_multiple": 4,
    "image_shape": [1, 2, 2],
}


def jagged_cases() -> dict[str, dict[str, Any]]:
    """Return the content of each case's file, by the name of the case."""
    counts = _counting(4, 6)
    odd = torch.tensor(ODD_BFLOAT16, dtype=torch.int16).view(torch.bfloat16)
    bfloat16 = counts.bfloat16() / -8
    bfloat16[2, :4] = odd
    return {
        "int64": _packed(counts + 2**40, LENGTHS, pad_value=151_643),
        "int32": _packed((counts % 2).int(), LENGTHS, pad_value=0),
        "bfloat16": _packed(bfloat16, LENGTHS, pad_value=-1.5),
        "bool": _packed(counts % 3 == 0, LENGTHS, pad_value=True),
        "trailing_dims": _packed(_counting(4, 6, 2, 2).byte(), LENGTHS, pad_value=255),
        "equal_rows": _packed(_counting(2, 3), (3, 3), pad_value=0),
        "empty_first_and_last": _packed(_counting(4, 2), (0, 2, 1, 0), pad_value=7),
        "all_empty": _packed(_counting(3, 2, 2), (0, 0, 0), pad_value=7),
        "per_sample": _packed(_counting(4), LENGTHS, per_token=False),
    }


def rollout_digests(rollout: SyntheticRollout) -> dict[str, str]:
    """Return digests of each column (dtype, shape and bytes), of ids, tags and message logs."""
    columns = {name: _digest_of(column) for name, column in _columns_of(rollout)}
    return columns | {
        name: _sha256(json.dumps(value).encode(), "json")
        for name, value in _non_tensors(rollout).items()
    }


def rollout_contents(rollout: SyntheticRollout) -> dict[str, Any]:
    """Return ids, tags and message logs, and for each column its dtype, row shape and rows."""
    columns = {
        name: {
            "dtype": str(column.dtype).removeprefix("torch."),
            "row_shape": list(column.shape[1:]),
            "rows": as_json(column),
        }
        for name, column in _columns_of(rollout)
    }
    return _non_tensors(rollout) | columns


def golden_files() -> dict[str, str]:
    """Return the current output: the text of each file by its name."""
    files = {f"jagged_{name}.json": _text(case) for name, case in jagged_cases().items()}
    digests = rollout_digests(rollout_batch(**ROLLOUT))
    whole = rollout_contents(rollout_batch(**SMALL_ROLLOUT))
    return files | {
        "rollout.json": _text({"arguments": ROLLOUT} | digests),
        "rollout_small.json": _text({"arguments": SMALL_ROLLOUT} | whole, _row_by_row),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare or write the files; return 1 if a file differs from the output."""
    parser = argparse.ArgumentParser(prog="python -m rlconform.certify.scenarios.golden")
    parser.add_argument("--write", action="store_true", help="write the files again")
    parser.add_argument("--into", type=Path, default=resource_dir("fixtures") / "golden")
    options = parser.parse_args(arguments)
    differ = False
    for name, text in golden_files().items():
        path: Path = options.into / name
        if path.is_file() and path.read_text("utf-8") == text:
            continue
        if options.write:
            path.write_text(text, "utf-8")
        differ = differ or not options.write
        sys.stdout.write(f"{path}: {'written' if options.write else 'differs from the output'}\n")
    return int(differ)


def _columns_of(rollout: SyntheticRollout) -> list[tuple[str, Tensor]]:
    return [(name, rollout.columns[name]) for name in map(str, rollout.columns.keys())]


def _non_tensors(rollout: SyntheticRollout) -> dict[str, Any]:
    """Return the values that are not tensors, each as a list with one entry per row."""
    return {
        "sample_ids": rollout.sample_ids,
        "tags": rollout.tags,
        "message_logs": strip_message_logs(rollout.message_logs).tolist(),
    }


def _counting(*shape: int) -> Tensor:
    return torch.arange(1, torch.Size(shape).numel() + 1).view(shape)


def _packed(
    column: Tensor, lengths: Sequence[int], *, per_token: bool = True, pad_value: float = 0
) -> dict[str, Any]:
    """Return a case: the column with ``pad_value`` beyond its rows, and its packed form."""
    padded = column.clone()
    if per_token:
        for row, length in zip(padded, lengths, strict=True):
            row[length:] = pad_value
    batch = TensorDict({"column": padded}, batch_size=[len(lengths)])
    leaf = pack_jagged_fields(batch, lengths, ["column"] if per_token else [])["column"]
    case = {"dtype": str(column.dtype).removeprefix("torch."), "lengths": list(lengths)}
    if not is_jagged(leaf):
        return case | {"padded": as_json(padded), "dense": as_json(leaf)}
    values, rows = jagged_parts(leaf)
    return case | {
        "pad_value": pad_value,
        "padded": as_json(padded),
        "offsets": rows.offsets.tolist(),
        "values": as_json(values),
    }


def as_json(tensor: Tensor) -> Any:
    """Return the values as nested lists; floats as ``"value bits"``, the bits in hexadecimal."""
    if tensor.dim():
        return [as_json(row) for row in tensor]
    if tensor.is_floating_point():
        raw = tensor.reshape(1).view(torch.uint8).tolist()
        return f"{tensor.item():g} {bytes(reversed(raw)).hex()}"
    return tensor.item()


def _digest_of(leaf: Tensor) -> str:
    kind = f"{str(leaf.dtype).removeprefix('torch.')} {'x'.join(map(str, leaf.shape))}"
    return _sha256(leaf.contiguous().view(-1).view(torch.uint8).numpy().tobytes(), kind)


def _sha256(data: bytes, kind: str) -> str:
    return f"{kind} sha256:{hashlib.sha256(data).hexdigest()}"


#: JSON that keeps non-ASCII letters.
_json = partial(json.dumps, ensure_ascii=False)


def _text(content: dict[str, Any], value_text: Callable[[Any], str] = _json) -> str:
    """Return JSON with one key per line, so that a diff shows what changed."""
    lines = (f"  {_json(key)}: {value_text(value)}" for key, value in content.items())
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _row_by_row(value: Any) -> str:
    """Return JSON with one row per line, so that a diff shows which row and column changed."""
    match value:
        case list():
            return "[\n" + ",\n".join(f"    {_json(row)}" for row in value) + "\n  ]"
        case {"rows": rows, **kind}:
            return f'{_json(kind)[:-1]}, "rows": {_row_by_row(rows)}}}'
    return _json(value)


if __name__ == "__main__":
    sys.exit(main())
