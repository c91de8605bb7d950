"""The wire: batches between the padded layout of a step and the jagged one of a plane.

    fields    to_nested_by_length, pack_per_token_field, stack_or_nest, as_read,
              response_from_nested
    batches   pack_jagged_fields on the way in, materialize on the way out
    objects   object_array, object_column, object_rows; message logs without their token ids
    leaves    classify_leaf, rows_of, same_rows: what a column is, and its rows in any layout
    pickled   reduce_tensor: a dense tensor under pickle, by its own bytes

Every copy is bit for bit. Nothing is dropped: what can't travel raises.
"""

from rlconform.wire.batch import Layout, materialize, pack_jagged_fields
from rlconform.wire.jagged import (
    as_read,
    pack_per_token_field,
    response_from_nested,
    stack_or_nest,
    to_nested_by_length,
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
from rlconform.wire.serialization import reduce_tensor

__all__ = [
    "Layout",
    "LeafKind",
    "Lengths",
    "as_read",
    "classify_leaf",
    "is_object_column",
    "materialize",
    "object_array",
    "object_column",
    "object_rows",
    "pack_jagged_fields",
    "pack_per_token_field",
    "rebuild_message_logs",
    "reduce_tensor",
    "response_from_nested",
    "rows_of",
    "same_rows",
    "stack_or_nest",
    "strip_message_logs",
    "to_nested_by_length",
]
