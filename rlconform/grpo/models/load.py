"""Loads a model and its tokenizer by the name of a tiny model or a folder; downloads nothing."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedConfig,
    PreTrainedModel,
)
from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from rlconform.contract import ConfigError
from rlconform.grpo.models.char_tokenizer import character_tokenizer
from rlconform.grpo.models.tiny import TINY_MODELS, tiny_config, tiny_model

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def load_model(model_name: str, *, precision: str = "float32", seed: int = 0) -> PreTrainedModel:
    """Load a tiny model with weights from the seed, or the model of a local folder, on the CPU.

    The model is in evaluation mode, with weights of the data type ``precision``. ``ConfigError`` if
    the name is neither a tiny model nor a folder with a model.
    """
    dtype = DTYPES[precision]
    if model_name in TINY_MODELS:
        tiny = tiny_model(model_name, seed)
        nn.Module.to(tiny, dtype=dtype)
        return tiny
    folder = _folder(model_name, "model_name")
    try:
        model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(
            folder, dtype=dtype, local_files_only=True
        )
    except (OSError, ValueError) as error:
        raise ConfigError(f"{model_name}: can't load a model: {_first_line(error)}") from error
    if hasattr(model.config, "output_router_logits"):
        model.config.output_router_logits = False  # no loss that depends on the micro-batches
    model.train(False)  # no dropout
    return model


def load_model_config(model_name: str) -> PreTrainedConfig:
    """Return the sizes of a tiny model or of a local folder's model, without its weights.

    ``ConfigError`` if the name is neither.
    """
    if model_name in TINY_MODELS:
        return tiny_config(model_name)
    folder = _folder(model_name, "model_name")
    try:
        config: PreTrainedConfig = AutoConfig.from_pretrained(folder, local_files_only=True)
    except (OSError, ValueError) as error:
        raise ConfigError(f"{model_name}: can't load config.json: {_first_line(error)}") from error
    return config


def load_tokenizer(model_name: str, tokenizer_name: str | None = None) -> PreTrainedTokenizerBase:
    """Load the tokenizer of the model or of another local folder, and give it a pad token.

    Raises:
        ConfigError: There is no tokenizer, or it has no chat template or no end token.
    """
    if tokenizer_name is None and model_name in TINY_MODELS:
        return character_tokenizer()
    name = tokenizer_name or model_name
    folder = _folder(name, "tokenizer_name" if tokenizer_name else "model_name")
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    except (OSError, ValueError) as error:
        raise ConfigError(f"{name}: can't load a tokenizer: {_first_line(error)}") from error
    if tokenizer.chat_template is None:
        raise ConfigError(f"{name}: the tokenizer has no chat template")
    if tokenizer.eos_token_id is None:
        raise ConfigError(f"{name}: the tokenizer has no end token (eos_token)")
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    loaded: PreTrainedTokenizerBase = tokenizer
    return loaded


def _folder(name: str, key: str) -> Path:
    if not Path(name).is_dir():
        raise ConfigError(
            f"{key} {name!r} is neither {' nor '.join(TINY_MODELS)} nor a local folder; models "
            f"are not downloaded"
        )
    return Path(name)


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]
