"""Message logs (WIRE-06): token ids are stored once and are rebuilt as views of the batch."""

from __future__ import annotations

import copy
import json

import pytest
import torch
from tensordict import TensorDict

from rlconform.wire import (
    object_column,
    object_rows,
    pack_per_token_field,
    rebuild_message_logs,
    strip_message_logs,
)


def message(role: str, *ids: int, **more: object) -> dict[str, object]:
    return {"role": role, "content": role.upper(), "token_ids": torch.tensor(ids).long(), **more}


LOGS = [
    [message("system", 1, 2), message("user", 3), message("assistant", 4, 5, 6, score=0.5)],
    [message("user"), message("assistant", 7)],
    [],
    [message("user", 8, 9), {"role": "tool", "content": None}, message("assistant")],
]
LENGTHS = [6, 1, 0, 2]
PADDED = torch.tensor(
    [[1, 2, 3, 4, 5, 6, 0], [7, 0, 0, 0, 0, 0, 0], [0] * 7, [8, 9, 0, 0, 0, 0, 0]]
)
BATCHES = {"dense": PADDED, "jagged": pack_per_token_field(PADDED, LENGTHS)}


def assert_equal_logs(left, right):
    assert len(left) == len(right)
    for left_log, right_log in zip(left, right, strict=True):
        assert len(left_log) == len(right_log)
        for a, b in zip(left_log, right_log, strict=True):
            assert a.keys() == b.keys()
            for key in a:
                if key == "token_ids":
                    assert a[key].dtype == b[key].dtype
                    assert a[key].tolist() == b[key].tolist()
                else:
                    assert a[key] == b[key]


@pytest.mark.parametrize("input_ids", BATCHES.values(), ids=BATCHES)
def test_rebuilt_logs_equal_the_originals(input_ids):
    assert_equal_logs(rebuild_message_logs(strip_message_logs(LOGS), input_ids), LOGS)


@pytest.mark.parametrize("input_ids", [PADDED, BATCHES["jagged"]], ids=BATCHES)
def test_token_ids_are_views_of_the_batch(input_ids):
    batch = input_ids.clone()
    logs = rebuild_message_logs(strip_message_logs(LOGS), batch)
    (batch.values() if batch.is_nested else batch).add_(100)
    assert [m["token_ids"].tolist() for m in logs[0]] == [[101, 102], [103], [104, 105, 106]]
    assert logs[1][1]["token_ids"].tolist() == [107]


def test_stripping_leaves_the_originals_alone():
    logs = copy.deepcopy(LOGS)
    strip_message_logs(logs)
    assert_equal_logs(logs, LOGS)


def test_stripped_logs_hold_no_tensor():
    """A plane that refuses tensors in objects can store these logs; token ids are stored once."""
    rows = object_rows(strip_message_logs(LOGS), len(LOGS))
    assert json.loads(json.dumps(rows))[0][2] == {
        "role": "assistant",
        "content": "ASSISTANT",
        "score": 0.5,
        "token_span": [3, 3],
    }


def test_survives_a_codec_that_knows_lists_only():
    rows = json.loads(json.dumps(object_rows(strip_message_logs(LOGS), len(LOGS))))
    assert_equal_logs(rebuild_message_logs(rows, PADDED), LOGS)


def test_follows_its_batch_through_reordering():
    batch = TensorDict({"input_ids": PADDED, "message_log": strip_message_logs(LOGS)}, [4])
    batch = batch[torch.tensor([3, 0])]
    rebuilt = rebuild_message_logs(batch.get("message_log"), batch["input_ids"])
    assert_equal_logs(rebuilt, [LOGS[3], LOGS[0]])


def test_no_rows():
    assert rebuild_message_logs(strip_message_logs([]), torch.zeros(0, 4)) == []


def test_rejects_a_row_too_short_for_its_log():
    with pytest.raises(ValueError, match="at tokens 3 to 6 in a row of 5"):
        rebuild_message_logs(strip_message_logs(LOGS), PADDED[:, :5])


def test_rejects_another_number_of_logs():
    with pytest.raises(ValueError, match="object column"):
        rebuild_message_logs(strip_message_logs(LOGS[:3]), PADDED)


@pytest.mark.parametrize("span", [(-1, 1), (0, -1), (2, -1)])
def test_rejects_a_span_that_runs_backwards(span):
    """A slice would count from the row's end and return another message's tokens."""
    log = object_column([[{"role": "user", "token_span": span}]])
    with pytest.raises(ValueError, match="in a row of"):
        rebuild_message_logs(log, PADDED[:1])


def test_rejects_token_ids_of_other_shapes():
    with pytest.raises(ValueError, match="token ids"):
        strip_message_logs([[{"token_ids": torch.zeros(1, 2)}]])
