"""Names of GRPO's columns. Shapes: N rows, S tokens (padded or jagged), L layers, K experts."""

from __future__ import annotations

INPUT_IDS = "input_ids"  # (N, S) int64, prompt and response
INPUT_LENGTHS = "input_lengths"  # (N,) int32 or int64, valid tokens of each row
GENERATION_LOGPROBS = "generation_logprobs"  # (N, S), from the rollout engine
PREV_LOGPROBS = "prev_logprobs"  # (N, S), from the policy before the step
REFERENCE_POLICY_LOGPROBS = "reference_policy_logprobs"  # (N, S)
ADVANTAGES = "advantages"  # (N, S)
TOKEN_MASK = "token_mask"  # (N, S), 1 on the tokens that are trained
SAMPLE_MASK = "sample_mask"  # (N,), 0 drops a row from the loss
TOTAL_REWARD = "total_reward"  # (N,) float32, the reward of the whole row

#: (N, S, L, K) uint8 or int16: the experts that each layer's router chose for each token while the
#: row was generated, see ``grpo.router_replay``. The highest value of the dtype means that they are
#: not known. Only runs with router replay have the column.
ROUTED_EXPERTS = "routed_experts"

#: Columns of shape (N,): one number per row.
PER_SAMPLE_FIELDS: frozenset[str] = frozenset({INPUT_LENGTHS, SAMPLE_MASK, TOTAL_REWARD})

#: Columns that the training stage reads.
DP_TRAIN_FIELDS: tuple[str, ...] = (
    INPUT_IDS,
    INPUT_LENGTHS,
    GENERATION_LOGPROBS,
    PREV_LOGPROBS,
    REFERENCE_POLICY_LOGPROBS,
    ADVANTAGES,
    TOKEN_MASK,
    SAMPLE_MASK,
)

#: Columns with one value per token, if they have a second dimension.
PER_TOKEN_FIELDS: frozenset[str] = (frozenset(DP_TRAIN_FIELDS) - PER_SAMPLE_FIELDS) | {
    ROUTED_EXPERTS
}

#: Columns that a logprob stage reads.
LP_SEED_FIELDS: tuple[str, ...] = (INPUT_IDS, INPUT_LENGTHS, TOKEN_MASK, SAMPLE_MASK)

#: Key of a meta's ``extra_info``: the width in tokens that every reader of the step pads to. The
#: driver sets it once.
GLOBAL_FORWARD_PAD_SEQLEN = "global_forward_pad_seqlen"

#: Keys of a shard's ``extra_info`` that describe its micro-batches, see ``plane.sharding``.
MICRO_BATCH_INDICES = "micro_batch_indices"
MICRO_BATCH_LENGTHS = "micro_batch_lengths"
ELEM_COUNTS_PER_GB = "elem_counts_per_gb"
PACKING_KEYS: tuple[str, ...] = (MICRO_BATCH_INDICES, MICRO_BATCH_LENGTHS, ELEM_COUNTS_PER_GB)
