"""``Retrieval``: asks a retrieval server for passages that fit a query."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import httpx
import msgspec

from rlconform.grpo.tools.base import Tool, ToolError


class _Passages(msgspec.Struct):
    passages: list[str]


class Retrieval(Tool):
    """Searches local text through ``tools.retrieval_server``, or a server with the same answer.

    ``POST /search`` with ``{"query": text, "count": number}``; ``{"passages": [text, ...]}``.
    """

    name = "retrieval"
    description = "Searches a collection of texts for passages that fit a query."
    parameters: ClassVar[Mapping[str, Any]] = {
        "type": "object",
        "properties": {"query": {"type": "string"}},
        "required": ["query"],
    }

    def __init__(self, url: str, count: int = 3, timeout_s: float = 10.0) -> None:
        self._url, self._count = f"{url.rstrip('/')}/search", count
        self._client = httpx.Client(timeout=timeout_s, trust_env=False)

    def run(self, arguments: Mapping[str, Any]) -> str:
        """Return the passages, one per line; ``ToolError`` if the server gives none in time."""
        query = self.text_argument(arguments, "query")
        try:
            answer = self._client.post(self._url, json={"query": query, "count": self._count})
            answer.raise_for_status()
            passages = msgspec.json.decode(answer.content, type=_Passages).passages
        except (httpx.HTTPError, msgspec.MsgspecError) as error:
            raise ToolError(f"the search for {query!r} failed: {error}") from error
        return "\n".join(passages) if passages else "no passage has a word of the query"
