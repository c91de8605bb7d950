"""Puts that treat all rows alike, return a part of the receipt, or leave a dtype when they fail."""

from __future__ import annotations

from dataclasses import replace

import torch

from rlconform.contract import KVBatchMeta
from rlconform.mutants.call import MethodCall
from rlconform.mutants.memory.helpers import (
    held,
    known_rows,
    names_of,
    partition_of,
    put_mutant,
    put_samples_mutant,
    take_back,
)


@put_mutant("PUT-11", evidence="is not produced for sample 'old0'")
def PutCreatesAllRowsIfFirstIsNew(put: MethodCall) -> None:
    """Creates all rows of a put whose first row is new, so the others lose their fields."""
    old = {row.sample_id: row.fields for row in known_rows(put)}
    put()
    if put.sample_ids[0] not in old:
        for row in known_rows(put):
            lost = old.get(row.sample_id, row.fields) - names_of(put.fields)
            take_back(partition_of(put), row, lost & row.fields)


#: Rows in one request.
REQUEST = 4096


@put_samples_mutant("PUT-14", evidence="number of sample_ids on the receipt")
def ReceiptOfLastRequest(put: MethodCall) -> KVBatchMeta:
    """Sends a large put as requests of 4,096 rows, and returns the receipt of the last one."""
    receipt = put()
    last = (max(0, len(receipt.sample_ids) - 1)) // REQUEST * REQUEST
    return replace(receipt, sample_ids=receipt.sample_ids[last:])


def fields_of_rows(put: MethodCall) -> set[str]:
    """Return the fields that some row of the put's partition has."""
    rows = held(put.plane, put.partition_id)._rows.values()
    return {name for row in rows for name in row.fields}


def dtypes_of_new_fields(put: MethodCall) -> dict[tuple[str, str], torch.dtype]:
    """Return the dtypes of the put's tensors whose fields no row has, by partition and field.

    Raises:
        ValueError: The plane has noted another dtype for one of them.
    """
    new = names_of(put.fields) - fields_of_rows(put)
    leaves = {name: put.fields.get(name) for name in new}
    dtypes = {
        (put.partition_id, name): leaf.dtype
        for name, leaf in leaves.items()
        if torch.is_tensor(leaf)
    }
    for key, dtype in dtypes.items():
        if (noted := put.notes.get(key, dtype)) != dtype:
            raise ValueError(f"{key[1]!r} holds {noted}")
    return dtypes


@put_samples_mutant("PUT-16", evidence="holds torch.float32")
def PutFailedSetsDtype(put: MethodCall) -> KVBatchMeta:
    """Sets the dtype of a new field before it checks the put, and keeps it when the put fails."""
    dtypes = dtypes_of_new_fields(put)
    put.notes |= dtypes
    receipt: KVBatchMeta = put()
    for key in dtypes:
        del put.notes[key]
    return receipt


@put_samples_mutant("PUT-16", evidence="holds torch.float32")
def PutRefusedForOneFieldSetsOthers(put: MethodCall) -> KVBatchMeta:
    """Keeps the dtypes of the new fields of a put that it refuses for the dtype of an old one."""
    dtypes = dtypes_of_new_fields(put)
    try:
        receipt: KVBatchMeta = put()
    except ValueError:
        if names_of(put.fields) & fields_of_rows(put):
            put.notes |= dtypes
        raise
    for key in dtypes:
        put.notes.pop(key, None)
    return receipt


@put_samples_mutant("PUT-16", evidence="not torch.int64", may_fail="LIFE-07")
def PutRefusedReplacesDtype(put: MethodCall) -> KVBatchMeta:
    """Replaces the dtype of a field before it compares it with that of the field's other rows.

    The put is refused, and so is the next one with the dtype that the rows have.
    """
    rows = held(put.plane, put.partition_id)._rows.values()
    for name in names_of(put.fields):
        leaf, key = put.fields.get(name), (put.partition_id, name)
        if not torch.is_tensor(leaf):
            continue
        before, put.notes[key] = put.notes.get(key, leaf.dtype), leaf.dtype
        others = [row for row in rows if name in row.fields and row.sample_id not in put.sample_ids]
        if others and before != leaf.dtype:
            raise ValueError(f"{name!r} is of {before}, not {leaf.dtype}")
    receipt: KVBatchMeta = put()
    return receipt
