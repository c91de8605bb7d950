"""Generates with vLLM, if it is installed; this needs a GPU and a model in a local folder.

    refit ── weights into a file in shared memory ──▶ each vLLM worker process reads its part

The file is needed because vLLM's worker processes accept only plain arguments. A generation holds
the engine's lock from its first to its last token, because ``vllm.LLM`` serves one thread: other
threads and a refit wait for all of its rows, and ``should_stop`` is asked only once, before them.
The code is for vLLM 0.11 and later (``logprobs_mode``). No test runs it, because that needs a GPU.
"""

from __future__ import annotations

import importlib
import importlib.util
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from rlconform.contract import ConfigError
from rlconform.grpo.config import GenerationConfig, PolicyConfig
from rlconform.grpo.generation.base import (
    GenerationEngine,
    OnFinished,
    Prefix,
    Prompts,
    Responses,
    Sampling,
    ShouldStop,
)
from rlconform.grpo.models import weights_digest
from rlconform.grpo.models.checkpoint_weight_names import as_checkpoint
from rlconform.grpo.models.tiny import TINY_MODELS

#: A folder in memory; a system without one uses the disk.
_SHARED_MEMORY = Path("/dev/shm")


class VLLMEngine(GenerationEngine):
    """Generates with ``vllm.LLM``; ``ConfigError`` without vLLM or CUDA, or for a tiny model."""

    def __init__(self, config: GenerationConfig, policy: PolicyConfig, *, device: str) -> None:
        super().__init__()
        _check(policy.model_name, device)
        self._vllm: Any = importlib.import_module("vllm")
        self._llm: Any = self._vllm.LLM(
            model=policy.model_name,
            tokenizer=policy.tokenizer_name,
            dtype=policy.precision,
            max_model_len=policy.max_total_sequence_length,
            tensor_parallel_size=config.vllm.tensor_parallel_size,
            gpu_memory_utilization=config.vllm.gpu_memory_utilization,
            enforce_eager=config.vllm.enforce_eager,
            # logprobs after the temperature, of the distribution that is sampled from
            logprobs_mode="processed_logprobs",
            # after a refit a cached prefix would belong to the old weights
            enable_prefix_caching=False,
            worker_extension_cls=f"{WeightReader.__module__}.{WeightReader.__qualname__}",
        )

    def _generate(
        self,
        prompts: Prompts,
        seeds: Sequence[int],
        sampling: Sampling,
        prefixes: Sequence[Prefix],
        should_stop: ShouldStop,
        on_finished: OnFinished,
    ) -> Responses:
        """Generate all responses in one call; vLLM splits the batch as its memory allows.

        vLLM draws from the seed anew after a prefix, so a response that goes on has other tokens
        than an uninterrupted one; its seed is another, because the draws would be repeated.
        ``on_finished`` is called for all rows after the last one is finished.
        """
        lengths = prompts.lengths.tolist()
        rows = zip(prompts.input_ids, lengths, prefixes, strict=True)
        with self._lock:
            if should_stop():
                return _all_cut(prefixes)
            outputs = self._llm.generate(
                [
                    {"prompt_token_ids": [*ids[:length].tolist(), *prefix.token_ids.tolist()]}
                    for ids, length, prefix in rows
                ],
                [
                    self._params(seed, sampling, len(prefix))
                    for seed, prefix in zip(seeds, prefixes, strict=True)
                ],
                use_tqdm=False,
            )
            version = self.weight_version
        responses = read_completions([output.outputs[0] for output in outputs], prefixes, version)
        responses.report_finished(on_finished)
        return responses

    def _load_weights(self, weights: Mapping[str, Tensor]) -> str:
        """Copy the weights; after an error in names or shapes vLLM is unusable.

        vLLM fuses and splits weights, so the digest is that of the given ones.
        """
        pieces = {name: piece.detach().cpu().contiguous() for name, piece in as_checkpoint(weights)}
        parent = _SHARED_MEMORY if _SHARED_MEMORY.is_dir() else None
        with tempfile.TemporaryDirectory(dir=parent) as folder:
            path = Path(folder) / "weights.safetensors"
            save_file(pieces, path)
            self._llm.collective_rpc("read_weights", args=(str(path),))
        return weights_digest(weights)

    def close(self) -> None:
        """Release the vLLM instance."""
        self._llm = None

    def _params(self, seed: int, sampling: Sampling, had: int) -> Any:
        return self._vllm.SamplingParams(
            temperature=0.0 if sampling.greedy else sampling.temperature,
            max_tokens=sampling.max_new_tokens - had,
            stop_token_ids=list(sampling.stop_token_ids),
            seed=(seed + had) % 2**63,
            logprobs=0,  # only those of the sampled tokens
            detokenize=False,
        )


class WeightReader:
    """A mixin that adds a method to vLLM's worker class: it reads new weights from a file."""

    model_runner: Any

    def read_weights(self, path: str) -> None:
        """Load a safetensors file into the worker's part of the model."""
        self.model_runner.model.load_weights(load_file(path).items())


def read_completions(
    completions: Sequence[Any], prefixes: Sequence[Prefix], version: int
) -> Responses:
    """Convert vLLM's ``CompletionOutput`` of each row, after its prefix, to responses."""
    logprobs = [
        [at[token].logprob for token, at in zip(row.token_ids, row.logprobs or [], strict=True)]
        for row in completions
    ]
    ids = [torch.tensor(list(row.token_ids), dtype=torch.int64) for row in completions]
    return Responses(
        [torch.cat([old.token_ids, new]) for old, new in zip(prefixes, ids, strict=True)],
        [
            torch.cat([old.logprobs, torch.tensor(new, dtype=torch.float32)])
            for old, new in zip(prefixes, logprobs, strict=True)
        ],
        [
            torch.cat([old.versions, torch.full_like(new, version)])
            for old, new in zip(prefixes, ids, strict=True)
        ],
        torch.tensor([row.finish_reason != "stop" for row in completions], dtype=torch.bool),
        torch.ones(len(completions), dtype=torch.bool),
    )


def _all_cut(prefixes: Sequence[Prefix]) -> Responses:
    """Return rows that got no further token."""
    none = torch.zeros(len(prefixes), dtype=torch.bool)
    return Responses(
        [prefix.token_ids for prefix in prefixes],
        [prefix.logprobs for prefix in prefixes],
        [prefix.versions for prefix in prefixes],
        none,
        none,
    )


def _check(model_name: str, device: str) -> None:
    if importlib.util.find_spec("vllm") is None:
        raise ConfigError(
            "generation.backend is vllm, which is not installed: install it on a machine with a "
            "GPU, or set generation.backend to transformers"
        )
    if model_name in TINY_MODELS:
        raise ConfigError(
            f"generation.backend vllm needs a model in a folder, and {model_name} is created in "
            f"code: set generation.backend to transformers"
        )
    if device != "cuda":
        raise ConfigError(f"generation.backend vllm needs cluster.device cuda, not {device}")
