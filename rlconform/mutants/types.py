"""Short names for the types in the method signatures that mutants override."""

from __future__ import annotations

from tensordict import TensorDict, TensorDictBase

from rlconform.contract import Tags

Ids = list[str]
#: Names of fields or tasks.
Names = list[str]
MaybeBatch = TensorDict | None
#: ``MaybeBatch`` as an engine receives it.
AnyBatch = TensorDictBase | None
MaybeTags = list[Tags] | None
#: Seconds that a claim may block; None means that it must not block.
Wait = float | None
#: What an engine's claim returns: ids and their tags.
Claimed = tuple[Ids, list[Tags]]
