"""Calls and answers on their way to another process, as bytes that hold any column.

Ray would leave tensors to torch's pickling, which loses some dtypes: what a check then saw broken
would be the kit's own transport.
"""

from __future__ import annotations

import io
import pickle
from typing import Any

import cloudpickle

from rlconform.wire import reduce_tensor


def pack(value: Any) -> bytes:
    """``value`` as bytes; whatever pickle raises for one that can't be sent."""
    file = io.BytesIO()
    _Pickler(file, protocol=5).dump(value)
    return file.getvalue()


def unpack(data: bytes) -> Any:
    """The value that was packed, a fresh one."""
    return pickle.loads(data)


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    def reducer_override(self, value: Any) -> Any:
        return reduce_tensor(value) or super().reducer_override(value)
