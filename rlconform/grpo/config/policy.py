"""``policy:``, the model that is trained and how its batches are cut into micro-batches."""

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
        eps: Added to the root of the second moment.
    """

    lr: PositiveFloat
    weight_decay: NonNegativeFloat = 0.0
    betas: Annotated[tuple[Fraction, Fraction], Field(strict=False)] = (0.9, 0.999)
    eps: PositiveFloat = 1e-8


class SchedulerConfig(ConfigModel):
    """Learning rate over the steps, as a factor of ``optimizer.lr``.

    Attributes:
        name: After the warm-up ``constant``, or down to ``min_lr_ratio`` at the last step in a
            straight line (``linear``) or along half a ``cosine``.
        warmup_steps: Steps of a straight line up to 1: step k, from 1, has k / warmup_steps.
        min_lr_ratio: Factor at ``grpo.max_num_steps``; ``constant`` has no use for it.
    """

    name: Literal["constant", "linear", "cosine"] = "constant"
    warmup_steps: NonNegativeInt = 0
    min_lr_ratio: Annotated[float, Field(ge=0, le=1)] = 0.0


class PackingConfig(ConfigModel):
    """How rows share a micro-batch.

    Attributes:
        mode: ``none``, a fixed number of rows, padded; ``sequence_packing``, rows laid end to end;
            ``dynamic_batching``, rows of like lengths, padded to the longest.
        train_mb_tokens: Most tokens of a micro-batch in training; not read under ``none``.
        logprob_mb_tokens: The same without gradients, where more fits.
        algorithm: Which rows share a pack, see ``plane.packing``.
        sequence_length_round: A row (packed) or a micro-batch's width (dynamic) takes the next
            multiple of this many tokens.
    """

    mode: PackingMode = "none"
    train_mb_tokens: PositiveInt | None = None
    logprob_mb_tokens: PositiveInt | None = None
    algorithm: PackingAlgorithm = "modified_first_fit_decreasing"
    sequence_length_round: PositiveInt = 1

    @model_validator(mode="after")
    def _tokens_are_given(self) -> Self:
        if self.mode != "none" and None in (self.train_mb_tokens, self.logprob_mb_tokens):
            raise ValueError(f"{self.mode} needs train_mb_tokens and logprob_mb_tokens")
        return self

    def sequence_packing(self, stage: Stage) -> SequencePacking | None:
        """What ``shard_meta_for_dp`` takes under that name; None in the other modes."""
        if self.mode != "sequence_packing":
            return None
        return SequencePacking(
            self._tokens(stage),
            algorithm=self.algorithm,
            sequence_length_pad_multiple=self.sequence_length_round,
        )

    def dynamic_batching(self, stage: Stage) -> DynamicBatching | None:
        """What ``shard_meta_for_dp`` takes under that name; None in the other modes."""
        if self.mode != "dynamic_batching":
            return None
        return DynamicBatching(self._tokens(stage), self.sequence_length_round)

    def _tokens(self, stage: Stage) -> int:
        tokens = self.train_mb_tokens if stage == "train" else self.logprob_mb_tokens
        if tokens is None:  # the validator has seen to it
            raise ValueError(f"{self.mode} needs {stage}_mb_tokens")
        return tokens


class PolicyConfig(ConfigModel):
    """The policy.

    Attributes:
        model_name: ``tiny-llama`` or ``tiny-qwen3-moe``, made in code from ``grpo.seed``, or a
            local folder with a model of transformers (never a name to download).
        tokenizer_name: Local folder of the tokenizer, where it isn't the model's own.
        precision: Type of the weights and of the forward pass; the optimizer's is the same.
        max_total_sequence_length: Most tokens of a row, prompt and response.
        train_global_batch_size: Rows of one optimizer step; all rows of the step by default.
        train_micro_batch_size: Rows of a micro-batch in training, under ``packing.mode: none``.
        logprob_batch_size: The same without gradients.
        make_sequence_length_divisible_by: The step's width is the next multiple of it, as tensor
            and sequence parallelism need it.
        max_grad_norm: Gradients of a larger norm are scaled down to it; null for never.
        parallelism: How data-parallel ranks keep one model: ``ddp``, each a copy; ``fsdp2``, each
            a part (``torch.distributed.fsdp.fully_shard``).
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
    def _the_longest_row_fits_a_microbatch(self) -> Self:
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
