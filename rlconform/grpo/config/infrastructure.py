"""The sections ``data:``, ``generation:``, ``cluster:``, ``checkpointing:`` and ``logger:``."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt, model_validator

from rlconform.grpo.config.base import ConfigModel

Name = Annotated[str, Field(min_length=1)]


class DataConfig(ConfigModel):
    """Options of the task and its problems."""

    task: Literal["emit", "copy", "sum", "sort", "guess", "jsonl"]

    # Synthetic problems:
    min_length: PositiveInt = 1  # characters or terms
    max_length: PositiveInt = 1
    digits: Annotated[int, Field(ge=2, le=10)] = 10  # they use the digits 0 to digits - 1
    target: Name = "7"  # the answer of ``emit``
    #: Whether a partly right response gets a part of the reward, see ``tasks.digits.credit``.
    partial_credit: bool = False

    # ``jsonl``:
    path: str | None = None  # file of training problems, {"question": ..., "answer": ...} per line
    val_path: str | None = None
    #: Whether each epoch has a new order, drawn from ``grpo.seed``, instead of the file's.
    shuffle: bool = True
    system_prompt: str | None = None  # first message of every problem

    #: Tools that the policy may call between its turns, see ``grpo.tools``.
    tools: list[Literal["calculator", "retrieval"]] = Field(default_factory=list)
    #: How calls are written: JSON in ``<tool_call>`` tags, or ``?3+4`` for the tiny tokenizer.
    tool_format: Literal["hermes", "digits"] = "hermes"
    retrieval_url: Annotated[str, Field(pattern=r"^https?://")] | None = None
    max_repeated_calls: NonNegativeInt = 1  # of a row; one more ends it

    @model_validator(mode="after")
    def _check_task(self) -> Self:
        if self.min_length > self.max_length:
            raise ValueError(f"min_length {self.min_length} is above max_length {self.max_length}")
        if "retrieval" in self.tools and self.retrieval_url is None:
            raise ValueError("the tool retrieval needs data.retrieval_url")
        if self.task == "jsonl" and not self.path:
            raise ValueError("task jsonl needs a path")
        return self


class HTTPGenerationConfig(ConfigModel):
    """Options of servers that generate, see ``generation.http_engine``."""

    #: Addresses without ``/v1``; the servers hold the model of ``policy.model_name``.
    endpoints: Annotated[list[Annotated[str, Field(pattern=r"^https?://")]], Field(min_length=1)]
    model: Name = "policy"  # the name under which the servers serve it
    connect_timeout_s: PositiveFloat = 10.0
    read_timeout_s: PositiveFloat = 120.0  # without a token, after which a stream counts as lost
    weights_timeout_s: PositiveFloat = 600.0  # of one server's weight update
    max_retries: NonNegativeInt = 4  # of a response in a row without a token in between
    backoff_s: PositiveFloat = 0.5  # before the first of them; doubled for each further one
    cooldown_s: PositiveFloat = 10.0  # in which a server that failed is avoided
    weights_dir: Name | None = None  # folder that all servers can read; null for the system's


class GenerationConfig(ConfigModel):
    """Options of the generation engine.

    ``temperature`` divides the logits, in sampling and wherever logprobs are computed. There is no
    top-k or top-p, because the tokens would be sampled from another distribution than the logprobs.
    """

    class VLLM(ConfigModel):
        """Options of vLLM, under the names that vLLM uses."""

        tensor_parallel_size: PositiveInt = 1
        gpu_memory_utilization: Annotated[float, Field(gt=0, le=1)] = 0.6
        enforce_eager: bool = False

    backend: Literal["transformers", "vllm", "http"] = "transformers"
    max_new_tokens: PositiveInt  # of one turn of the policy
    temperature: PositiveFloat = 1.0
    batch_size: PositiveInt | None = None  # rows generated at once; all by default
    val_greedy: bool = True  # validation takes the most likely token instead of sampling
    vllm: VLLM = VLLM()
    http: HTTPGenerationConfig | None = None  # needed by ``backend: http``

    @model_validator(mode="after")
    def _check_http(self) -> Self:
        if self.backend == "http" and self.http is None:
            raise ValueError("generation.backend http needs generation.http.endpoints")
        return self


class ClusterConfig(ConfigModel):
    """Options of the policy workers and the rollout workers, and of their resource pools."""

    dp_size: PositiveInt = 1  # data-parallel ranks, one Ray actor each
    #: Rollout workers, one Ray actor with a generation engine each. The synchronous trainers use
    #: only the first one; the others get the same weights.
    rollout_workers: PositiveInt = 1
    device: Literal["cpu", "cuda"] = "cpu"  # collectives over gloo, or nccl with one GPU per rank
    #: Nodes that have equally many ranks, or rollout workers; null for nodes with room.
    train_nnodes: PositiveInt | None = None
    rollout_nnodes: PositiveInt | None = None
    #: Where the ranks are: on GPUs (CPUs on ``cpu``) of their own, or on those of the rollout
    #: workers, or also on those of the reward workers; ranks that find no place there get their
    #: own. By default ``rollout`` on ``cuda`` and ``own`` on ``cpu``. See ``resource_pools``.
    train_pool: Literal["own", "rollout", "rollout_and_reward"] | None = None
    timeout_s: PositiveFloat = 600.0  # of a call to the actors, after which the run fails


class CheckpointingConfig(ConfigModel):
    """Options of checkpoints (weights, optimizer, dataloader, random generators, step)."""

    enabled: bool = False
    checkpoint_dir: Name = "results/grpo"  # a run resumes from the newest one in it
    save_period: PositiveInt = 10  # steps between two checkpoints
    keep_last: PositiveInt | None = None  # number of checkpoints that are kept; null for all


class LoggerConfig(ConfigModel):
    """Options of the metrics files and of the event log."""

    log_dir: Name = "logs/grpo"  # folder of metrics.jsonl and of TensorBoard's files
    tensorboard_enabled: bool = True
    #: Folder of the event log that ``rlconform check-run`` judges; null for none.
    events_dir: Name | None = None
