"""Layouts of a batch: padded for a training step, jagged for storage in a plane.

    jagged          one field: pack_per_token_field, stack_or_nest, as_read, response_from_nested
    batch           a whole batch: pack_jagged_fields before a put, materialize after a get
    object_columns  object_array, object_column, object_rows
    message_logs    message logs without their token ids
    leaves          classify_leaf, rows_of, same_rows: the kind of a column, and its rows
    serialization   Python values with tensors in them, for other processes

Copies keep every bit. A leaf that can't be converted raises an error; none is dropped silently.
"""

from rlconform.wire.batch import Layout, materialize, pack_jagged_fields
from rlconform.wire.jagged import (
    pack_per_token_field,
    response_from_nested,
    stack_or_nest,
)
from rlconform.wire.leaves import LeafKind, classify_leaf, rows_of, same_rows
from rlconform.wire.message_logs import rebuild_message_logs, strip_message_logs
from rlconform.wire.object_columns import (
    is_object_column,
    object_array,
    object_column,
    object_rows,
)
from rlconform.wire.ragged_rows import Lengths

__all__ = [
    "Layout",
    "LeafKind",
    "Lengths",
    "classify_leaf",
    "is_object_column",
    "materialize",
    "object_array",
    "object_column",
    "object_rows",
    "pack_jagged_fields",
    "pack_per_token_field",
    "rebuild_message_logs",
    "response_from_nested",
    "rows_of",
    "same_rows",
    "stack_or_nest",
    "strip_message_logs",
]
