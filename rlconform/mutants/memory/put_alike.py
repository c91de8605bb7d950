"""Puts that take values for each other that a database or a small type does not tell apart."""

from __future__ import annotations

from typing import Any

import torch

from rlconform.mutants.call import MethodCall
from rlconform.mutants.memory.column_helpers import is_dense
from rlconform.mutants.memory.helpers import names_of, partition_of, put_mutant
from rlconform.wire import is_object_column, object_column, object_rows


@put_mutant("PUT-23", evidence="uint8")
def PutBoolsJoinBytes(put: MethodCall) -> None:
    """Keeps bools and bytes in one column, so bools come back as bytes beside living bytes."""
    dtypes, fields = put.notes, put.fields
    fields = fields.copy() if names_of(fields) else fields
    for name in names_of(fields):
        leaf, key = fields.get(name), (put.partition_id, name)
        if not isinstance(leaf, torch.Tensor) or not is_dense(leaf):
            continue
        rows = partition_of(put)._rows.items()
        others = any(name in row.fields for i, row in rows if i not in put.sample_ids)
        if leaf.dtype is torch.bool and dtypes.get(key) is torch.uint8 and others:
            fields.set(name, leaf.to(torch.uint8))
    put(fields=fields)
    dtypes |= {
        (put.partition_id, n): getattr(fields.get(n), "dtype", None) for n in names_of(fields)
    }


@put_mutant("PUT-21", evidence="to be 'answer'")
def PutTextsByCollation(put: MethodCall) -> None:
    """Keeps the texts of a put in a table with a collation, as a SQL database compares them.

    Texts that differ in case or in blanks at their end become the first of them.
    """
    fields: Any = put.fields.copy() if names_of(put.fields) else put.fields
    for name in names_of(fields):
        leaf = fields.get(name)
        rows = object_rows(leaf, len(put.sample_ids)) if is_object_column(leaf) else []
        if rows and all(type(row) is str for row in rows):
            words: dict[str, str] = {}
            known = [words.setdefault(row.rstrip(" ").casefold(), row) for row in rows]
            fields.set(name, object_column(known))
    put(fields=fields)
