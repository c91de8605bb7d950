"""A retrieval server: searches the texts of a folder for many clients, in batches.

    thread of a request ── submit ──▶ BatchingExecutor (one event loop) ──▶ TextIndex, in a thread
                        ◀── passages ──┘
    POST /search {"query": text, "count": number} ──▶ {"passages": [text, ...]}

Run it: ``python -m rlconform.grpo.tools.retrieval_server FOLDER --port 8100``
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import msgspec

from rlconform.grpo.loop_thread import LoopThread
from rlconform.grpo.rewards.batch_runner import BatchingError
from rlconform.grpo.rewards.batching_executor import BatchingExecutor
from rlconform.grpo.tools.text_index import TextIndex


class Search(msgspec.Struct, frozen=True):
    """The body of a request."""

    query: str
    count: int = 3


@dataclass(frozen=True)
class Found:
    """The answer to one search."""

    search: Search
    passages: list[str]


class RetrievalServer(ThreadingHTTPServer):
    """Serves searches on loopback; ``batches`` has the size of each batch that was searched."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(
        self,
        index: TextIndex,
        port: int = 0,
        *,
        max_batch_size: int = 32,
        max_wait_ms: float = 5.0,
    ) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.batches: list[int] = []
        self._index = index
        self._loop = LoopThread("retrieval")
        self._executor = BatchingExecutor[Search, Found](
            [self._search_all],
            max_batch_size=max_batch_size,
            max_wait_ms=max_wait_ms,
            max_queue=1024,
            is_answer=lambda search, found: found.search is search,
        )

    @property
    def url(self) -> str:
        """The server's address."""
        return f"http://127.0.0.1:{self.server_address[1]}"

    def search(self, search: Search) -> Found:
        """Search in the next batch; called by the thread of a request, which waits."""

        async def answer() -> Found:
            return await (await self._executor.submit(search))

        return self._loop.run(answer())

    def server_close(self) -> None:
        """Answer what is queued, and end. Idempotent."""
        super().server_close()
        if self._loop.alive:
            self._loop.run(self._executor.close())
            self._loop.close()

    async def _search_all(self, searches: Sequence[Search], /) -> list[Found]:
        self.batches.append(len(searches))
        return await asyncio.to_thread(self._found, searches)

    def _found(self, searches: Sequence[Search]) -> list[Found]:
        most = max(search.count for search in searches)
        results = self._index.search_all([search.query for search in searches], most)
        return [
            Found(search, [passage.text for passage in passages[: search.count]])
            for search, passages in zip(searches, results, strict=True)
        ]


class _Handler(BaseHTTPRequestHandler):
    """Answers one request per connection, so no thread waits for a client's next one."""

    server: RetrievalServer

    def log_message(self, *_: object) -> None:
        """Write nothing."""

    def do_POST(self) -> None:
        """Answer ``/search``."""
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.path != "/search":
            self._answer(404, {"error": f"expected /search; got {self.path}"})
            return
        try:
            search = msgspec.json.decode(body, type=Search)
        except msgspec.MsgspecError as error:
            self._answer(400, {"error": str(error)})
            return
        try:
            self._answer(200, {"passages": self.server.search(search).passages})
        except BatchingError as error:
            self._answer(503, {"error": str(error)})

    def _answer(self, status: int, body: object) -> None:
        data = msgspec.json.encode(body)
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def main() -> None:
    """Serve until interrupted."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="folder with .txt and .md files")
    parser.add_argument("--port", type=int, default=0)
    options = parser.parse_args()
    server = RetrievalServer(TextIndex.of_folder(options.folder), options.port)
    sys.stdout.write(f"{server.url}\n")
    sys.stdout.flush()
    server.serve_forever()


if __name__ == "__main__":
    main()
