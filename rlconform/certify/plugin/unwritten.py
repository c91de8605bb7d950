"""Finds the methods of an adapter that are not written yet: they raise ``NotImplementedError``.

Without a put no check can say anything about a plane, and hundreds of failures would say the same.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from typing import Any

import torch
from tensordict import TensorDict

from rlconform.certify.assertions.expect import ContractViolation
from rlconform.certify.threads import BackgroundCall
from rlconform.contract import DataPlaneClient, KVBatchMeta

#: A run needs these methods; what a plane without one of the others does is for the checks to say.
NEEDED = ("register_partition", "put_samples")


def unwritten_methods(client: DataPlaneClient, timeout_s: float) -> dict[str, str]:
    """Call each method but ``close`` once; return what those raise that are not written.

    After a call that does not return in time no other is made.
    """
    unwritten: dict[str, str] = {}
    for method, call in _calls(client).items():
        try:
            BackgroundCall(call, method).result(timeout_s)
        except NotImplementedError as error:
            unwritten[method] = str(error).removeprefix(f"{method}: ") or "not implemented"
        except ContractViolation:
            break
        except Exception:  # noqa: BLE001 - a plane may raise anything; the checks judge it
            continue
    return unwritten


def message(client: object, unwritten: Mapping[str, str]) -> str:
    """Return a line for each of the methods, with what is to be written."""
    lines = "".join(f"\n  {method}: {text}" for method, text in unwritten.items())
    count = "a method" if len(unwritten) == 1 else f"{len(unwritten)} methods"
    return f"{type(client).__name__} has {count} to write:{lines}"


def _calls(client: DataPlaneClient) -> dict[str, Callable[[], Any]]:
    """Return the simplest call of each method, in the order in which they are of use."""
    part, ids, names = f"first-{uuid.uuid4().hex[:8]}", ["h"], ["x"]
    rows = TensorDict({"x": torch.ones(1)}, batch_size=[1])
    meta = KVBatchMeta(part, None, ids, names)
    return {
        "register_partition": lambda: client.register_partition(
            partition_id=part, fields=names, num_samples=1, consumer_tasks=["t"]
        ),
        "put_samples": lambda: client.put_samples(sample_ids=ids, partition_id=part, fields=rows),
        "get_samples": lambda: client.get_samples(
            sample_ids=ids, partition_id=part, select_fields=names
        ),
        "claim_meta": lambda: client.claim_meta(
            partition_id=part, task_name="t", required_fields=names, batch_size=1, blocking=False
        ),
        "get_data": lambda: client.get_data(meta),
        "check_consumption_status": lambda: client.check_consumption_status(
            partition_id=part, task_names=["t"]
        ),
        "clear_samples": lambda: client.clear_samples(sample_ids=ids, partition_id=part),
    }
