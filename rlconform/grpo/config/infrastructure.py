"""``data:``, ``generation:``, ``cluster:``, ``checkpointing:`` and ``logger:``."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from rlconform.grpo.config.base import ConfigModel

Name = Annotated[str, Field(min_length=1)]


class DataConfig(ConfigModel):
    """The task and its problems.

    Attributes:
        task: ``emit``, ``copy``, ``sum``, ``sort``, ``guess`` (several turns) or ``jsonl``.
        min_length: Minimum number of characters or terms of a synthetic problem.
        max_length: Maximum number of them.
        digits: Synthetic problems use the digits 0 to ``digits - 1``.
        target: The answer of ``emit``.
        partial_credit: Synthetic problems: whether a partly right response gets a part of the
            reward, see ``tasks.digits.credit``; else 1 for the exact answer and 0 otherwise.
        path: ``jsonl``: file of training problems, ``{"question": ..., "answer": ...}`` per line.
        val_path: ``jsonl``: file of validation problems.
        shuffle: ``jsonl``: whether to shuffle the problems, in a new order each epoch that is drawn
            from ``grpo.seed``; else they are read in the order of the file.
        system_prompt: First message of every ``jsonl`` problem.
    """

    task: Literal["emit", "copy", "sum", "sort", "guess", "jsonl"]
    min_length: PositiveInt = 1
    max_length: PositiveInt = 1
    digits: Annotated[int, Field(ge=2, le=10)] = 10
    target: Name = "7"
    partial_credit: bool = False
    path: str | None = None
    val_path: str | None = None
    shuffle: bool = True
    system_prompt: str | None = None

    @model_validator(mode="after")
    def _check_task(self) -> Self:
        if self.min_length > self.max_length:
            raise ValueError(f"min_length {self.min_length} is above max_length {self.max_length}")
        if self.task == "jsonl" and not self.path:
            raise ValueError("task jsonl needs a path")
        return self


class GenerationConfig(ConfigModel):
    """The generation engine.

    Attributes:
        backend: ``transformers``, or ``vllm`` where it is installed.
        max_new_tokens: Maximum tokens of one turn of the policy.
        temperature: Divisor of the logits, in sampling and wherever logprobs are computed. There is
            no top-k or top-p, because the logprobs would be those of another distribution.
        batch_size: Rows generated at once; all by default.
        val_greedy: Whether validation takes the most likely token instead of sampling.
        vllm: Options of vLLM.
    """

    class VLLM(ConfigModel):
        """Options of vLLM.

        Attributes:
            tensor_parallel_size: GPUs of one engine.
            gpu_memory_utilization: Share of a GPU's memory that vLLM may use.
            enforce_eager: Whether to disable CUDA graphs.
        """

        tensor_parallel_size: PositiveInt = 1
        gpu_memory_utilization: Annotated[float, Field(gt=0, le=1)] = 0.6
        enforce_eager: bool = False

    backend: Literal["transformers", "vllm"] = "transformers"
    max_new_tokens: PositiveInt
    temperature: PositiveFloat = 1.0
    batch_size: PositiveInt | None = None
    val_greedy: bool = True
    vllm: VLLM = VLLM()


class ClusterConfig(ConfigModel):
    """The policy workers.

    Attributes:
        dp_size: Data-parallel ranks, one Ray actor each.
        device: ``cpu`` (collectives over gloo) or ``cuda`` (nccl, one GPU per rank).
        timeout_s: Seconds that a call to the actors may take before the run fails.
    """

    dp_size: PositiveInt = 1
    device: Literal["cpu", "cuda"] = "cpu"
    timeout_s: PositiveFloat = 600.0


class CheckpointingConfig(ConfigModel):
    """Checkpoints: weights, optimizer, dataloader, random generators, step.

    Attributes:
        enabled: Whether checkpoints are written.
        checkpoint_dir: Their folder; a run resumes from the newest one in it.
        save_period: Steps between two checkpoints.
        keep_last: Number of checkpoints that are kept; null for all.
    """

    enabled: bool = False
    checkpoint_dir: Name = "results/grpo"
    save_period: PositiveInt = 10
    keep_last: PositiveInt | None = None


class LoggerConfig(ConfigModel):
    """Metrics.

    Attributes:
        log_dir: Folder of ``metrics.jsonl`` and of TensorBoard's files.
        tensorboard_enabled: Whether to write TensorBoard's files.
    """

    log_dir: Name = "logs/grpo"
    tensorboard_enabled: bool = True
