"""Texts of tags that each process keeps in a pool of its own."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from rlconform.backends.ray_store.controller import Controller, Refusal, StoredPut
from rlconform.mutants.call import State
from rlconform.mutants.ray_store.mutant import controller_mutant

#: Characters of a text from which on it is in a pool.
_LONG = 13


class _Pooled(int):
    """The number of a text in the pool of the process that has stamped it."""


@controller_mutant("TAG-07", chance=False, evidence="to carry the stamps", may_fail="TAG-01 TAG-03")
class RowHasOneTextPool(Controller):
    """Keeps long texts as numbers in a pool of each process, and for each row which pool it is.

    A second process that stamps a long text on the row changes the pool of the first one's texts.
    """

    _pools = State(dict[str, dict[str, int]])
    _pool_of = State(dict[tuple[str, str], str])

    async def commit(self, put: StoredPut, *rest: Any) -> Any:
        if put.tags is None:
            return await super().commit(put, *rest)
        pool = self._pools.setdefault(put.writer, {})

        def stored(value: Any) -> Any:
            pooled = type(value) is str and len(value) >= _LONG
            return _Pooled(pool.setdefault(value, len(pool))) if pooled else value

        tags = [{key: stored(value) for key, value in row.items()} for row in put.tags]
        answer = await super().commit(replace(put, tags=tags), *rest)
        for sample_id, row in zip(put.sample_ids, tags, strict=True):
            if any(isinstance(value, _Pooled) for value in row.values()):
                self._pool_of[put.partition_id, sample_id] = put.writer
        return answer

    async def claim(self, partition_id: str, *rest: Any) -> Any:
        answer = await super().claim(partition_id, *rest)
        if answer is None or isinstance(answer, Refusal):
            return answer
        ids, tags = answer
        return ids, [self._texts(partition_id, *row) for row in zip(ids, tags, strict=True)]

    def _texts(self, partition_id: str, sample_id: str, row: dict[str, Any]) -> dict[str, Any]:
        pool = self._pools.get(self._pool_of.get((partition_id, sample_id), ""), {})
        texts = [*pool]
        return {
            key: (texts[value:] or [""])[0] if isinstance(value, _Pooled) else value
            for key, value in row.items()
        }


#: Numbers of a block.
_BLOCK = 2048


@controller_mutant("TAG-01", chance=False, evidence="the tags", may_fail="TAG-08 FLOW-01 LOAD-01")
class NumbersBehindTheBlock(Controller):
    """Numbers long texts in a block of each process, and then on, into the block of another."""

    _next = State(dict[str, int])  # by process
    _numbers = State(dict[tuple[str, str], int])  # by process and text
    _texts = State(dict[int, str])

    async def commit(self, put: StoredPut, *rest: Any) -> Any:
        if put.tags is None:
            return await super().commit(put, *rest)
        tags = [{key: self._stored(put.writer, v) for key, v in row.items()} for row in put.tags]
        return await super().commit(replace(put, tags=tags), *rest)

    def _stored(self, writer: str, value: Any) -> Any:
        if type(value) is not str or len(value) < _LONG:
            return value
        if (writer, value) not in self._numbers:
            number = self._next.setdefault(writer, len(self._next) * _BLOCK)
            self._next[writer] = number + 1
            self._numbers[writer, value], self._texts[number] = number, value
        return _Pooled(self._numbers[writer, value])

    async def claim(self, partition_id: str, *rest: Any) -> Any:
        answer = await super().claim(partition_id, *rest)
        if answer is None or isinstance(answer, Refusal):
            return answer
        ids, tags = answer
        texts = self._texts
        return ids, [
            {key: texts[v] if isinstance(v, _Pooled) else v for key, v in row.items()}
            for row in tags
        ]
