"""``policy:``, the model, its optimizer and its micro-batches."""

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
from rlconform.plane.microbatches import DynamicBatching, SequencePacking, round_up
from rlconform.plane.packing import PackingAlgorithm

Precision = Literal["float32", "bfloat16", "float16"]
PackingMode = Literal["none", "sequence_packing", "dynamic_batching"]
Stage = Literal["train", "logprob"]
Fraction = Annotated[float, Field(ge=0, lt=1)]


class OptimizerConfig(ConfigModel):
    """AdamW (Loshchilov and Hutter, 2019).

    Attributes:
        lr: Learning rate after the warm-up.
        weight_decay: Decoupled weight decay.
        betas: Decay rates of the first and second moment.
        eps: Added to the square root of the second moment.
    """

    lr: PositiveFloat
    weight_decay: NonNegativeFloat = 0.0
    betas: Annotated[tuple[Fraction, Fraction], Field(strict=False)] = (0.9, 0.999)
    eps: PositiveFloat = 1e-8


class SchedulerConfig(ConfigModel):
    """Learning rate over the steps, as a factor of ``optimizer.lr``.

    Attributes:
        name: Shape after the warm-up: ``constant``, or a ``linear`` or ``cosine`` decay to
            ``min_lr_ratio`` at the last step.
        warmup_steps: Steps of the linear warm-up: step k, from 1, has the factor k / warmup_steps.
        min_lr_ratio: Factor at ``grpo.max_num_steps``; not read by ``constant``.
    """

    name: Literal["constant", "linear", "cosine"] = "constant"
    warmup_steps: NonNegativeInt = 0
    min_lr_ratio: Annotated[float, Field(ge=0, le=1)] = 0.0


class PackingConfig(ConfigModel):
    """How rows share a micro-batch.

    Attributes:
        mode: ``none``: a fixed number of padded rows; ``sequence_packing``: rows concatenated
            without padding; ``dynamic_batching``: rows of similar length, padded to the longest.
        train_mb_tokens: Maximum tokens of a micro-batch in training; not read under ``none``.
        logprob_mb_tokens: The same for logprobs, where more fit because there are no gradients.
        algorithm: Algorithm that assigns rows to packs, see ``plane.packing``.
        sequence_length_round: The length of a row (packed) or the width of a micro-batch (dynamic)
            is rounded up to a multiple of this.
    """

    mode: PackingMode = "none"
    train_mb_tokens: PositiveInt | None = None
    logprob_mb_tokens: PositiveInt | None = None
    algorithm: PackingAlgorithm = "modified_first_fit_decreasing"
    sequence_length_round: PositiveInt = 1

    @model_validator(mode="after")
    def _check_tokens(self) -> Self:
        if self.mode != "none" and None in (self.train_mb_tokens, self.logprob_mb_tokens):
            raise ValueError(f"{self.mode} needs train_mb_tokens and logprob_mb_tokens")
        return self

    def sequence_packing(self, stage: Stage) -> SequencePacking | None:
        """The options for ``shard_meta_for_dp``; None in the other modes."""
        if self.mode != "sequence_packing":
            return None
        return SequencePacking(
            self._tokens(stage),
            algorithm=self.algorithm,
            sequence_length_pad_multiple=self.sequence_length_round,
        )

    def dynamic_batching(self, stage: Stage) -> DynamicBatching | None:
        """The options for ``shard_meta_for_dp``; None in the other modes."""
        if self.mode != "dynamic_batching":
            return None
        return DynamicBatching(self._tokens(stage), self.sequence_length_round)

    def _tokens(self, stage: Stage) -> int:
        tokens = self.train_mb_tokens if stage == "train" else self.logprob_mb_tokens
        if tokens is None:  # excluded by the validator
            raise ValueError(f"{self.mode} needs {stage}_mb_tokens")
        return tokens


class PolicyConfig(ConfigModel):
    """The policy.

    Attributes:
        model_name: ``tiny-llama`` or ``tiny-qwen3-moe``, created in code from ``grpo.seed``, or a
            local folder with a model of transformers; nothing is downloaded.
        tokenizer_name: Local folder of the tokenizer, if it isn't the model's own.
        precision: Data type of the weights, of the forward pass and of the optimizer's state.
        max_total_sequence_length: Maximum tokens of a row, prompt and responses together.
        train_global_batch_size: Rows of one optimizer step; all rows of the step by default.
        train_micro_batch_size: Rows of a micro-batch in training, under ``packing.mode: none``.
        logprob_batch_size: The same without gradients.
        make_sequence_length_divisible_by: The step's width is rounded up to a multiple of this, as
            tensor and sequence parallelism need it.
        max_grad_norm: Gradients are clipped to this norm; null for no clipping.
        parallelism: ``ddp``: each rank has a replica of the model; ``fsdp2``: each rank has a shard
            (``torch.distributed.fsdp.fully_shard``).
        packing: How rows share a micro-batch.
        optimizer: AdamW's values.
        scheduler: The learning rate over the steps.
    """

    model_name: Annotated[str, Field(min_length=1)]
    tokenizer_name: str | None = None
    precision: Precision = "float32"
    max_total_sequence_length: PositiveInt
    train_global_batch_size: PositiveInt | None = None
    train_micro_batch_size: PositiveInt = 8
    logprob_batch_size: PositiveInt = 8
    make_sequence_length_divisible_by: PositiveInt = 1
    max_grad_norm: PositiveFloat | None = 1.0
    parallelism: Literal["ddp", "fsdp2"] = "ddp"
    packing: PackingConfig = PackingConfig()
    optimizer: OptimizerConfig
    scheduler: SchedulerConfig = SchedulerConfig()

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
