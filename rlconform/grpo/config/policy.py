"""The section ``policy:``: the model, its optimizer and its micro-batches."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import (
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    model_validator,
)

from rlconform.grpo.config.base import ConfigModel
from rlconform.grpo.config.megatron import MegatronConfig
from rlconform.plane.microbatches import DynamicBatching, SequencePacking, round_up
from rlconform.plane.packing import PackingAlgorithm

Stage = Literal["train", "logprob"]
Fraction = Annotated[float, Field(ge=0, lt=1)]


class OptimizerConfig(ConfigModel):
    """Options of AdamW (Loshchilov and Hutter, 2019), under torch's names."""

    lr: PositiveFloat  # after the warm-up
    weight_decay: NonNegativeFloat = 0.0
    betas: Annotated[tuple[Fraction, Fraction], Field(strict=False)] = (0.9, 0.999)
    eps: PositiveFloat = 1e-8


class SchedulerConfig(ConfigModel):
    """Options of the learning-rate schedule, which multiplies ``optimizer.lr`` by a factor.

    After a linear warm-up the factor is ``constant``, or it decays (``linear`` or ``cosine``) to
    ``min_lr_ratio`` at the last update, see ``workers.optimizer``.
    """

    name: Literal["constant", "linear", "cosine"] = "constant"
    warmup_steps: NonNegativeInt = 0  # updates
    min_lr_ratio: Annotated[float, Field(ge=0, le=1)] = 0.0


class PackingConfig(ConfigModel):
    """Options of how rows share a micro-batch.

    ``none``: a fixed number of padded rows; ``sequence_packing``: rows concatenated without
    padding; ``dynamic_batching``: rows of similar length, padded to the longest.
    """

    mode: Literal["none", "sequence_packing", "dynamic_batching"] = "none"
    train_mb_tokens: PositiveInt | None = None  # maximum per micro-batch, in either mode
    logprob_mb_tokens: PositiveInt | None = None  # more fit, because there are no gradients
    algorithm: PackingAlgorithm = "modified_first_fit_decreasing"  # see ``plane.packing``
    #: The length of a row (packed) or the width of a micro-batch (dynamic) is rounded up to a
    #: multiple of this.
    sequence_length_round: PositiveInt = 1

    @model_validator(mode="after")
    def _check_tokens(self) -> Self:
        if self.mode != "none" and None in (self.train_mb_tokens, self.logprob_mb_tokens):
            raise ValueError(f"{self.mode} needs train_mb_tokens and logprob_mb_tokens")
        return self

    def sequence_packing(self, stage: Stage) -> SequencePacking | None:
        """Return the options for ``shard_meta_for_dp``, or None in the other modes."""
        if self.mode != "sequence_packing":
            return None
        return SequencePacking(
            self._tokens(stage),
            algorithm=self.algorithm,
            sequence_length_pad_multiple=self.sequence_length_round,
        )

    def dynamic_batching(self, stage: Stage) -> DynamicBatching | None:
        """Return the options for ``shard_meta_for_dp``, or None in the other modes."""
        if self.mode != "dynamic_batching":
            return None
        return DynamicBatching(self._tokens(stage), self.sequence_length_round)

    def _tokens(self, stage: Stage) -> int:
        tokens = self.train_mb_tokens if stage == "train" else self.logprob_mb_tokens
        assert tokens is not None  # see ``_check_tokens``
        return tokens


class RouterReplayConfig(ConfigModel):
    """Options of router replay, see ``grpo.router_replay``."""

    #: Whether logprob and training passes use the experts that generation chose. It needs a
    #: mixture of experts, and an engine that records them.
    enabled: bool = False


class PolicyConfig(ConfigModel):
    """Options of the policy: model, precision, batch sizes, parallelism and optimizer."""

    #: ``tiny-llama`` or ``tiny-qwen3-moe``, created in code from ``grpo.seed``, or a local folder
    #: with a model of transformers; nothing is downloaded.
    model_name: Annotated[str, Field(min_length=1)]
    tokenizer_name: str | None = None  # local folder, if it isn't the model's own
    #: Data type of the weights, of the forward pass and of the optimizer's state.
    precision: Literal["float32", "bfloat16", "float16"] = "float32"
    max_total_sequence_length: PositiveInt  # tokens of a row, prompt and responses together
    #: Rows of one optimizer step; all rows of the step by default.
    train_global_batch_size: PositiveInt | None = None
    train_micro_batch_size: PositiveInt = 8  # rows, under ``packing.mode: none``
    logprob_batch_size: PositiveInt = 8  # rows, in passes without gradients
    #: The step's width is rounded up to a multiple of this, as tensor and sequence parallelism
    #: need it.
    make_sequence_length_divisible_by: PositiveInt = 1
    max_grad_norm: PositiveFloat | None = 1.0  # null for no clipping
    #: Each rank has a replica of the model, or a shard (``torch.distributed.fsdp.fully_shard``).
    parallelism: Literal["ddp", "fsdp2"] = "ddp"
    #: With ``enabled: true`` Megatron-core runs the model instead, see ``workers.megatron``.
    megatron_cfg: MegatronConfig = MegatronConfig()
    #: Whether the ranks keep proof of which rows gave an update a gradient, see
    #: ``workers.witness`` and ``PlanePolicy.witnessed``. It needs a data plane, and two numbers per
    #: token of memory.
    witness: bool = False
    #: Whether the layers' activations are computed again in the backward pass instead of kept.
    activation_checkpointing: bool = False
    router_replay: RouterReplayConfig = RouterReplayConfig()
    packing: PackingConfig = PackingConfig()
    optimizer: OptimizerConfig
    scheduler: SchedulerConfig = SchedulerConfig()

    @model_validator(mode="after")
    def _check_megatron(self) -> Self:
        megatron = self.megatron_cfg
        if not megatron.enabled:
            return self
        if self.precision == "float16":
            raise ValueError("megatron_cfg.enabled needs precision float32 or bfloat16")
        key, width = "make_sequence_length_divisible_by", self.make_sequence_length_divisible_by
        multiple = megatron.width_multiple
        if self.packing.mode != "none":
            key, width = "packing.sequence_length_round", self.packing.sequence_length_round
        if self.packing.mode == "sequence_packing":  # the whole is rounded up
            multiple = megatron.row_multiple
        if width % multiple:
            raise ValueError(
                f"megatron_cfg: sequence_parallel and context_parallel_size need {key} to be a "
                f"multiple of {multiple}; got {width}"
            )
        return self

    @model_validator(mode="after")
    def _check_microbatch_tokens(self) -> Self:
        if self.packing.mode == "none":
            return self
        longest = round_up(self.max_total_sequence_length, self.packing.sequence_length_round)
        for key in ("train_mb_tokens", "logprob_mb_tokens"):
            if getattr(self.packing, key) < longest:
                raise ValueError(
                    f"packing.{key} is {getattr(self.packing, key)}, too little for a row of "
                    f"{longest} tokens (max_total_sequence_length, rounded up)"
                )
        return self
