"""Models, tokenizers, message logs and logprobs.

load_model, load_tokenizer   create tiny models in code, load others from a local folder
message_log                  turns with roles, whose token ids make up a row
TokenOrder                   in which order a model gets the tokens of a micro-batch
token_logprobs               one forward pass over rows, padded or packed
weights_digest               a short text that tells whether two copies of the weights are equal
"""

from rlconform.grpo.models.char_tokenizer import character_tokenizer
from rlconform.grpo.models.load import load_model, load_model_config, load_tokenizer
from rlconform.grpo.models.logprobs import token_logprobs
from rlconform.grpo.models.message_log import (
    environment_turn,
    log_input_ids,
    open_log,
    policy_turn,
)
from rlconform.grpo.models.tiny import TINY_MODELS, tiny_config, tiny_model
from rlconform.grpo.models.token_order import RowLayout, TokenOrder
from rlconform.grpo.models.weights_digest import weights_digest

__all__ = [
    "TINY_MODELS",
    "RowLayout",
    "TokenOrder",
    "character_tokenizer",
    "environment_turn",
    "load_model",
    "load_model_config",
    "load_tokenizer",
    "log_input_ids",
    "open_log",
    "policy_turn",
    "tiny_config",
    "tiny_model",
    "token_logprobs",
    "weights_digest",
]
