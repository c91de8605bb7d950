"""``WeightFiles``: brings new weights to the servers through a file that all of them can read.

    weights ── safetensors file ──▶ POST /collective_rpc read_weights(path) ──▶ every server
                                    POST /reset_prefix_cache: its entries belong to the old weights
    digests ◀── of what each server's workers read

A vLLM server offers both calls if it was started with ``VLLM_SERVER_DEV_MODE=1`` and
``--worker-extension-cls rlconform.grpo.generation.vllm_engine.WeightReader``.
"""

from __future__ import annotations

import asyncio
import logging
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import httpx
import msgspec
from safetensors.torch import save_file
from torch import Tensor

from rlconform.grpo.config.infrastructure import HTTPGenerationConfig
from rlconform.grpo.failures import ServersLost
from rlconform.grpo.generation.http_router import Endpoint
from rlconform.grpo.models import weights_digest
from rlconform.grpo.models.checkpoint_weight_names import as_checkpoint

_LOG = logging.getLogger(__name__)


class _Results(msgspec.Struct):
    """Answer of ``/collective_rpc``: what each worker process of a server returned."""

    results: list[str | None]


class WeightFiles:
    """Sends weights to servers."""

    def __init__(self, options: HTTPGenerationConfig) -> None:
        self._options = options

    async def send(
        self,
        client: httpx.AsyncClient,
        endpoints: Sequence[Endpoint],
        weights: Mapping[str, Tensor],
        version: int,
    ) -> str:
        """Let all servers read the weights, and note which of them have this version.

        Returns:
            ``weights_digest`` of the weights, if every server that answered has read these; else
            the digest that a server gives, which differs.

        Raises:
            ServersLost: No server has read the weights.
        """
        pieces = {name: piece.detach().cpu().contiguous() for name, piece in as_checkpoint(weights)}
        sent = weights_digest(pieces)
        with tempfile.TemporaryDirectory(dir=self._options.weights_dir) as folder:
            path = Path(folder) / f"weights-{version}.safetensors"
            await asyncio.to_thread(save_file, pieces, path)
            answers = await asyncio.gather(
                *(self._update(client, endpoint, path) for endpoint in endpoints),
                return_exceptions=True,
            )
        held: set[str] = set()
        for endpoint, answer in zip(endpoints, answers, strict=True):
            match answer:
                case set():
                    endpoint.version = version
                    held |= answer
                case httpx.HTTPError() | msgspec.MsgspecError():
                    endpoint.version = None  # it may have read a part
                    endpoint.failed(answer)
                    _LOG.warning("%s has not got weights %d: %r", endpoint.url, version, answer)
                case BaseException():
                    raise answer
        if all(endpoint.version != version for endpoint in endpoints):
            raise ServersLost(
                f"expected a server to read weights of version {version}; none of "
                f"{[endpoint.url for endpoint in endpoints]} did: {answers[0]!r}"
            )
        differing = sorted(held - {sent})
        return differing[0] if differing else weights_digest(weights)

    async def _update(self, client: httpx.AsyncClient, endpoint: Endpoint, path: Path) -> set[str]:
        """Let one server read the file; return the digests that its workers give."""
        endpoint.version = None
        call = {"method": "read_weights", "args": [str(path)]}
        timeout = self._options.weights_timeout_s
        answer = await client.post(f"{endpoint.url}/collective_rpc", json=call, timeout=timeout)
        answer.raise_for_status()
        results = msgspec.json.decode(answer.content, type=_Results).results
        reset = await client.post(f"{endpoint.url}/reset_prefix_cache", timeout=timeout)
        reset.raise_for_status()
        return {digest for digest in results if digest is not None}
