"""``data:``, ``generation:``, ``cluster:``, ``checkpointing:`` and ``logger:``."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from rlconform.grpo.config.base import ConfigModel

Name = Annotated[str, Field(min_length=1)]


class DataConfig(ConfigModel):
    """The problems.

    Attributes:
        task: ``emit``, ``copy``, ``sum``, ``sort``, ``guess`` (several turns) or ``jsonl``.
        min_length: Fewest characters or terms of a made problem.
        max_length: Most of them.
        digits: Made problems use the digits from 0 up to, not including, this one.
        target: What ``emit`` asks for.
        partial_credit: Made problems: whether each right leading character earns its share, and the
            end of the response another; else 1 for exactly the answer and 0 for all else.
        path: ``jsonl``: file of training problems, one ``{"question": ..., "answer": ...}`` a line.
        val_path: ``jsonl``: file of validation problems.
        shuffle: Whether ``jsonl``'s problems come in an order drawn from ``grpo.seed``, another one
            each epoch; else in the file's.
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
    def _the_task_has_what_it_needs(self) -> Self:
        if self.min_length > self.max_length:
            raise ValueError(f"min_length {self.min_length} is over max_length {self.max_length}")
        if self.task == "jsonl" and not self.path:
            raise ValueError("task jsonl needs a path")
        return self


class GenerationConfig(ConfigModel):
    """The engine that writes the responses.

    Attributes:
        backend: ``transformers``, or ``vllm`` where it is installed.
        max_new_tokens: Most tokens of one turn of the policy.
        temperature: Logits are divided by it before sampling, and wherever logprobs are computed.
            Sampling is never cut (top-k, top-p): the logprobs would be those of another policy.
        batch_size: Rows generated at once; all by default.
        val_greedy: Whether validation takes the likeliest token instead of sampling.
        vllm: What only vLLM reads.
    """

    class VLLM(ConfigModel):
        """vLLM's own values.

        Attributes:
            tensor_parallel_size: GPUs of one engine.
            gpu_memory_utilization: Share of a GPU's memory that it may take.
            enforce_eager: Whether to do without CUDA graphs.
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
    """The workers.

    Attributes:
        dp_size: Data-parallel ranks, one Ray actor each.
        device: ``cpu`` (collectives over gloo) or ``cuda`` (nccl, one GPU for each rank).
        timeout_s: Seconds that a stage of a step may take before the run is given up.
    """

    dp_size: PositiveInt = 1
    device: Literal["cpu", "cuda"] = "cpu"
    timeout_s: PositiveFloat = 600.0


class CheckpointingConfig(ConfigModel):
    """Checkpoints: weights, optimizer, dataloader, random generators, step.

    Attributes:
        enabled: Whether any are written.
        checkpoint_dir: Their folder; a run resumes from the newest one in it.
        save_period: Steps between two of them.
        keep_last: How many are kept; null for all.
    """

    enabled: bool = False
    checkpoint_dir: Name = "results/grpo"
    save_period: PositiveInt = 10
    keep_last: PositiveInt | None = None


class LoggerConfig(ConfigModel):
    """Metrics.

    Attributes:
        log_dir: Folder of ``metrics.jsonl`` and of TensorBoard's files.
        tensorboard_enabled: Whether the latter are written.
    """

    log_dir: Name = "logs/grpo"
    tensorboard_enabled: bool = True
