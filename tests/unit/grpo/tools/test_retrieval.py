"""The retrieval server and its tool: batches, failures, and what the policy reads."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from rlconform.grpo.tools import ToolError
from rlconform.grpo.tools.retrieval import Retrieval
from rlconform.grpo.tools.retrieval_server import RetrievalServer, Search
from rlconform.grpo.tools.text_index import Passage, TextIndex

TEXTS = ("A plane carries rows.", "A worker trains on rows.", "A queue holds groups.")


@pytest.fixture
def server() -> Iterator[RetrievalServer]:
    index = TextIndex([Passage(str(number), text) for number, text in enumerate(TEXTS)])
    server = RetrievalServer(index, max_batch_size=8, max_wait_ms=60_000)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def test_searches_of_several_threads_are_one_batch_and_each_gets_its_own(
    server: RetrievalServer,
) -> None:
    """The server waits a minute for a batch to be full; eight searches fill one."""
    tool = Retrieval(server.url, count=1)
    queries = ["plane", "worker", "queue", "rows", "plane", "trains", "groups", "nothing"]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda query: tool.run({"query": query}), queries))
    assert server.batches == [8]
    plane, worker, queue = TEXTS
    none = "no passage has a word of the query"
    assert found[3] in {plane, worker}
    assert found[:3] + found[4:] == [plane, worker, queue, plane, worker, queue, none]


def test_closing_answers_what_is_queued(server: RetrievalServer) -> None:
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(server.search, Search("plane", 1))
        while not server._executor._queue:
            assert not waiting.done()
        server.shutdown()
        server.server_close()
        assert waiting.result().passages == [TEXTS[0]]


@pytest.mark.parametrize("arguments", [{}, {"query": 3}, {"text": "plane"}])
def test_wrong_arguments_are_named(arguments: dict[str, object]) -> None:
    with pytest.raises(ToolError, match="expected the argument query as text"):
        Retrieval("http://127.0.0.1:9").run(arguments)


def test_a_server_that_is_not_there_is_what_the_policy_reads() -> None:
    with pytest.raises(ToolError, match="the search for 'plane' failed"):
        Retrieval("http://127.0.0.1:9").run({"query": "plane"})
