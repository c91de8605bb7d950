"""The gate of streams closes whatever ends the calls that run streams."""

from __future__ import annotations

import asyncio

import pytest

from rlconform.grpo.generation.stream_gate import StreamGate

#: Seconds that a gate may take to close before the test calls it stuck.
PATIENCE_S = 5.0


class SlowStream:
    """A stream that takes some turns of the event loop to end once it is cancelled."""

    def __init__(self) -> None:
        self.began, self.ending, self.may_end = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.ended = False

    async def __call__(self) -> None:
        """Wait to be cancelled, then to be let go."""
        self.began.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.ending.set()
            await self.may_end.wait()
            self.ended = True


def test_a_gate_closes_if_a_call_is_cancelled_while_its_stream_ends() -> None:
    """A row of a group fails while a weight update ends the streams of the others."""

    async def run() -> None:
        gate, stream = StreamGate(), SlowStream()
        row = asyncio.create_task(gate.run(stream, asyncio.Event()))
        await stream.began.wait()
        closing = asyncio.create_task(gate.close())
        await stream.ending.wait()
        row.cancel()
        with pytest.raises(asyncio.CancelledError):
            await row
        assert not closing.done(), "the stream has not ended"
        stream.may_end.set()
        await asyncio.wait_for(closing, PATIENCE_S)
        assert stream.ended

    asyncio.run(run())


def test_a_closed_gate_lets_streams_through_again() -> None:
    async def run() -> None:
        gate, stream = StreamGate(), SlowStream()
        stream.may_end.set()
        await gate.close()
        row = asyncio.create_task(gate.run(stream, asyncio.Event()))
        await asyncio.sleep(0)
        assert not stream.began.is_set()
        await gate.open()
        await asyncio.wait_for(stream.began.wait(), PATIENCE_S)
        await asyncio.wait_for(gate.close(), PATIENCE_S)
        await row

    asyncio.run(run())


def test_the_error_of_a_stream_is_raised() -> None:
    async def broken() -> None:
        raise ConnectionError("planned")

    async def run() -> None:
        gate = StreamGate()
        with pytest.raises(ConnectionError):
            await gate.run(broken, asyncio.Event())
        await asyncio.wait_for(gate.close(), PATIENCE_S)

    asyncio.run(run())
