"""Calls in threads whose tasks were cancelled are waited for, but not for ever."""

from __future__ import annotations

import asyncio
from threading import Event

from rlconform.grpo.trainers.async_controller import cancel_others
from rlconform.grpo.trainers.call_threads import CallThreads


def test_a_call_of_a_cancelled_task_is_waited_for() -> None:
    begun, answered, ended = Event(), Event(), Event()

    def call() -> None:
        begun.set()
        answered.wait()
        ended.set()

    async def begin() -> None:
        task = asyncio.ensure_future(asyncio.to_thread(call))
        while not begun.is_set():
            await asyncio.sleep(0)
        assert not task.done()

    threads = CallThreads()
    with asyncio.Runner() as runner:
        runner.get_loop().set_default_executor(threads)
        runner.run(begin())
        runner.run(cancel_others(10.0))
        assert asyncio.all_tasks(runner.get_loop()) == set()
        assert not threads.wait(0.01), "nobody has answered the call"
        answered.set()
        assert threads.wait(10.0)
        assert ended.is_set()
