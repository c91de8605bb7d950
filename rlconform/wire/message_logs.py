"""Removes token ids from message logs, because ``input_ids`` has them too, and restores them.

A row's log is a list of messages, each a dict with its ``token_ids``; the row's input ids are those
of its messages, concatenated. A stripped message has only the span of its tokens:

    {"role": "user", "content": "Hi", "token_ids": tensor([7, 9])}      as the rollout makes it
    {"role": "user", "content": "Hi", "token_span": (3, 2)}             stripped: start, length
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tensordict import NonTensorStack
from torch import Tensor

from rlconform.wire.leaves import rows_of
from rlconform.wire.object_columns import object_column, object_rows

TOKEN_IDS = "token_ids"
TOKEN_SPAN = "token_span"

MessageLog = list[dict[str, Any]]


def strip_message_logs(logs: Iterable[Iterable[Mapping[str, Any]]]) -> NonTensorStack:
    """Build an object column of the N logs, with (start, length) spans instead of ``token_ids``.

    The given logs are not changed. The column shares their other values and keeps messages without
    token ids. ``ValueError`` for token ids that are not one-dimensional.
    """
    return object_column(_strip(log) for log in logs)


def rebuild_message_logs(stripped: object, input_ids: Tensor) -> list[MessageLog]:
    """Rebuild the N logs, with ``token_ids`` that are views of the batch's ``input_ids``.

    ``stripped`` is the column of ``strip_message_logs`` in any form that a plane returns;
    ``input_ids`` are the whole token ids of the same rows, dense (N, S) or jagged (N, j).
    ``ValueError`` for another number of logs, or a span that is not inside its row.
    """
    rows = rows_of(input_ids)
    logs = object_rows(stripped, len(rows))
    return [_rebuild(log, row) for log, row in zip(logs, rows, strict=True)]


def _strip(log: Iterable[Mapping[str, Any]]) -> MessageLog:
    stripped: MessageLog = []
    start = 0
    for message in log:
        kept = dict(message)
        if TOKEN_IDS in kept:
            ids = kept.pop(TOKEN_IDS)
            if ids.dim() != 1:
                raise ValueError(f"a message's token ids must be (T,), got {tuple(ids.shape)}")
            kept[TOKEN_SPAN] = (start, len(ids))
            start += len(ids)
        stripped.append(kept)
    return stripped


def _rebuild(log: Iterable[Mapping[str, Any]], row: Tensor) -> MessageLog:
    rebuilt: MessageLog = []
    for message in log:
        whole = dict(message)
        if TOKEN_SPAN in whole:
            start, length = whole.pop(TOKEN_SPAN)
            if not 0 <= start <= start + length <= len(row):
                raise ValueError(
                    f"a message at tokens {start} to {start + length} in a row of {len(row)}"
                )
            whole[TOKEN_IDS] = row[start : start + length]
        rebuilt.append(whole)
    return rebuilt
