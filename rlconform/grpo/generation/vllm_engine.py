"""Generates with vLLM, if it is installed; this needs a GPU and a model in a local folder.

    refit ── weights into a file in shared memory ──▶ each vLLM worker process reads its part

The file is needed because vLLM's worker processes accept only plain arguments. The code is for
vLLM 0.11 and later (``logprobs_mode``). No test runs it, because that needs a GPU.
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
from rlconform.grpo.generation.base import GenerationEngine, Prompts, Responses, Sampling
from rlconform.grpo.models.checkpoint_weight_names import as_checkpoint
from rlconform.grpo.models.tiny import TINY_MODELS

#: A folder in memory; a system without one uses the disk.
_SHARED_MEMORY = Path("/dev/shm")


class VLLMEngine(GenerationEngine):
    """Generates with ``vllm.LLM``; ``ConfigError`` without vLLM or CUDA, or for a tiny model."""

    def __init__(self, config: GenerationConfig, policy: PolicyConfig, *, device: str) -> None:
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

    def _generate(self, prompts: Prompts, seeds: Sequence[int], sampling: Sampling) -> Responses:
        """Generate all responses in one call; vLLM splits the batch as its memory allows."""
        lengths = prompts.lengths.tolist()
        outputs = self._llm.generate(
            [
                {"prompt_token_ids": row[:length].tolist()}
                for row, length in zip(prompts.input_ids, lengths, strict=True)
            ],
            [self._params(seed, sampling) for seed in seeds],
            use_tqdm=False,
        )
        return read_completions([output.outputs[0] for output in outputs], self.weight_version)

    def _load_weights(self, weights: Mapping[str, Tensor]) -> None:
        """Copy the weights; after an error in names or shapes vLLM is unusable."""
        pieces = {name: piece.detach().cpu().contiguous() for name, piece in as_checkpoint(weights)}
        parent = _SHARED_MEMORY if _SHARED_MEMORY.is_dir() else None
        with tempfile.TemporaryDirectory(dir=parent) as folder:
            path = Path(folder) / "weights.safetensors"
            save_file(pieces, path)
            self._llm.collective_rpc("read_weights", args=(str(path),))

    def close(self) -> None:
        """Release the vLLM instance."""
        self._llm = None

    def _params(self, seed: int, sampling: Sampling) -> Any:
        return self._vllm.SamplingParams(
            temperature=0.0 if sampling.greedy else sampling.temperature,
            max_tokens=sampling.max_new_tokens,
            stop_token_ids=list(sampling.stop_token_ids),
            seed=seed,
            logprobs=0,  # only those of the sampled tokens
            detokenize=False,
        )


class WeightReader:
    """A mixin that adds a method to vLLM's worker class: it reads new weights from a file."""

    model_runner: Any

    def read_weights(self, path: str) -> None:
        """Load a safetensors file into the worker's part of the model."""
        self.model_runner.model.load_weights(load_file(path).items())


def read_completions(completions: Sequence[Any], version: int) -> Responses:
    """Convert vLLM's ``CompletionOutput`` of each row to responses."""
    logprobs = [
        [at[token].logprob for token, at in zip(row.token_ids, row.logprobs or [], strict=True)]
        for row in completions
    ]
    return Responses(
        [torch.tensor(list(row.token_ids), dtype=torch.int64) for row in completions],
        [torch.tensor(of_row, dtype=torch.float32) for of_row in logprobs],
        torch.tensor([row.finish_reason != "stop" for row in completions], dtype=torch.bool),
        version,
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
