"""Objects and tags that come back as others, as what carries them has no place for them."""

# ruff: noqa: ARG002 - a mutant looks at what it needs of a call

from __future__ import annotations

import math
from typing import Any

from tensordict import TensorDictBase

from rlconform.backends.memory.engine import MemoryEngine
from rlconform.contract import Tags
from rlconform.mutants.engines import breaks, breaks_engine, rows_in
from rlconform.mutants.tags import _ChangesValues
from rlconform.mutants.values_objects import AlteringObjects


class _Recodes(AlteringObjects):
    """A plane that changes keys and values within objects."""

    def stored(self, values: list[Any]) -> list[Any]:
        """The values, changed at any depth."""
        return [self._within(value) for value in values]

    def _within(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {self.key(key): self._within(held) for key, held in value.items()}
        if isinstance(value, list):
            return self.stored(value)
        return self.value(value)

    def key(self, key: Any) -> Any:
        """What is kept of a dict's key."""
        return key

    def value(self, value: Any) -> Any:
        """What is kept of a value that is no dict or list."""
        return value


@breaks("PUT-21", says="to be {1: 'a'}")
class KeysBecomeText(_Recodes):
    """Sends objects as JSON, whose keys are text: token ids that are keys come back as such."""

    def key(self, key: Any) -> Any:
        """Integers as text."""
        return str(key) if type(key) is int else key


@breaks("PUT-21", says="to be 9223372036854775807")
class BigNumbersAreDoubles(_Recodes):
    """Sends objects in a format whose only numbers are doubles: seeds above 2**53 change."""

    def value(self, value: Any) -> Any:
        """Integers as near as a double comes to them."""
        return int(float(value)) if type(value) is int else value


@breaks("PUT-21", says="to be 'aaaa")
class CutsLongTexts(_Recodes):
    """Keeps texts with a length of sixteen bits: a long message ends early."""

    def value(self, value: Any) -> Any:
        """As much of a text as it has room for."""
        return value[: 2**16 - 1] if isinstance(value, str) else value


@breaks("TAG-01", says="got {'std': None}")
class NanTagsAreNone(_ChangesValues):
    """Sends tags as JSON, which knows no NaN: the deviation of one sample comes back as None."""

    @staticmethod
    def change(value: Any) -> Any:
        """What is kept of a value."""
        return None if isinstance(value, float) and math.isnan(value) else value


@breaks("TAG-01", says="to carry {'prompt'")
class CutsLongTags(_ChangesValues):
    """Keeps tags in a column of 4096 characters, as a database has it: a longer text is cut."""

    @staticmethod
    def change(value: Any) -> Any:
        """What is kept of a value."""
        return value[:4096] if isinstance(value, str) else value


class _ChangesTags(MemoryEngine):
    """Keeps the tags of a put as ``kept`` makes them."""

    def put(
        self,
        partition_id: str,
        sample_ids: list[str],
        fields: TensorDictBase | None,
        tags: list[Tags] | None,
    ) -> None:
        """Put with the tags as they are kept."""
        super().put(partition_id, sample_ids, fields, tags and self.kept(partition_id, tags))

    def kept(self, partition_id: str, tags: list[Tags]) -> list[Tags]:
        """What is kept of a put's tags."""
        raise NotImplementedError


@breaks_engine("TAG-01", says="got {'reward': 1.0}")
class TagColumnsOfThePut(_ChangesTags):
    """Makes columns of a put's tags: an integer beside a float of the same key becomes a float."""

    def kept(self, partition_id: str, tags: list[Tags]) -> list[Tags]:
        """Floats under the keys that have one."""
        floats = {key for row in tags for key, value in row.items() if isinstance(value, float)}
        return [
            {k: float(v) if k in floats and type(v) is int else v for k, v in row.items()}
            for row in tags
        ]


@breaks_engine("TAG-01", says="got {'reward': 0}")
class TagColumnsTypedByTheFirst(_ChangesTags):
    """Learns a tag's type from the first put that has it: a later 0.5 among integers is 0."""

    def __init__(self, capacity: int | None, owner: bool) -> None:
        super().__init__(capacity, owner)
        self._types: dict[tuple[str, str], type] = {}

    def kept(self, partition_id: str, tags: list[Tags]) -> list[Tags]:
        """Integers under the keys that had one in an earlier put."""
        whole = {key for (where, key), kind in self._types.items()
                 if where == partition_id and kind is int}  # fmt: skip
        for row in tags:
            for key, value in row.items():
                self._types.setdefault((partition_id, key), type(value))
        return [
            {k: int(v) if k in whole and _is_finite(v) else v for k, v in row.items()}
            for row in tags
        ]


def _is_finite(value: Any) -> bool:
    return isinstance(value, float) and math.isfinite(value)


@breaks_engine("TAG-01", says="tags after a stamp on one row of three")
class EqualTagsAreOneDict(MemoryEngine):
    """Keeps equal tags of a put in one dict, as pickle does of ``[tags] * n``.

    A stamp updates it in place: what one row gets, all of them have.
    """

    def put(
        self,
        partition_id: str,
        sample_ids: list[str],
        fields: TensorDictBase | None,
        tags: list[Tags] | None,
    ) -> None:
        """Put, equal tags in one dict."""
        shared: dict[str, Tags] = {}
        with self._locked() as index:
            old = {r.sample_id: r.tags for r in rows_in(index, partition_id, sample_ids) if r.tags}
            super().put(partition_id, sample_ids, fields, tags)
            for row, new in zip(rows_in(index, partition_id, sample_ids), tags or [], strict=False):
                row.tags = old.get(row.sample_id) or shared.setdefault(repr(new), dict(new))
                row.tags.update(new)
