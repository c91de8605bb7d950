"""The index of a plane: its rows, where their bytes are stored, and the tasks that claimed them.

It holds no bytes and imports no torch, so a controller process that holds it starts quickly.
``memory`` keeps its index behind a lock, ``ray_store`` keeps it in its controller.
"""

from rlconform.backends.index.block import SLACK_BYTES, Extent, Names, Source
from rlconform.backends.index.index import CompactedBlock, Index, Usage
from rlconform.backends.index.partition import PartitionIndex
from rlconform.backends.index.row import IndexRow

__all__ = [
    "SLACK_BYTES",
    "CompactedBlock",
    "Extent",
    "Index",
    "IndexRow",
    "Names",
    "PartitionIndex",
    "Source",
    "Usage",
]
