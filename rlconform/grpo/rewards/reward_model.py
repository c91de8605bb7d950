"""``RewardModel``: a sequence classification model that scores whole rows, and can rest.

    rows ── chat template, tokenizer ──▶ ids, padded on the right ── model ──▶ scores
    sleep ──▶ the weights leave the device         wake, or the next ``score`` ──▶ they are back

A row is the problem's messages, the policy's turns and what the environment said between them, with
the end token of the last turn if the policy wrote it. Its score is that at its last token. Padding
changes no score, but kernels may round by the shape of their input: in float32 the scores of one
row in different batches differ by less than 1e-5 of the largest score.
"""

from __future__ import annotations

import gc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoModelForSequenceClassification, PreTrainedModel
from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from rlconform.contract import ConfigError
from rlconform.grpo.failures import RewardFailure
from rlconform.grpo.models import load_tokenizer, log_input_ids, open_log, weights_digest
from rlconform.grpo.models.char_tokenizer import character_tokenizer
from rlconform.grpo.rewards.base import RewardRequest
from rlconform.grpo.rewards.conversation import conversation
from rlconform.grpo.rewards.tiny_reward_model import TINY_REWARD_MODEL, tiny_reward_model


@dataclass(frozen=True)
class RowToScore:
    """What a reward model reads of a ``RewardRequest``."""

    sample_id: str
    attempt: int
    messages: tuple[Mapping[str, str], ...]  # up to the policy's last turn
    text: str  # what the policy wrote in it
    ended: bool  # whether it wrote the end token

    @classmethod
    def of(cls, request: RewardRequest) -> RowToScore:
        """Take the row of a request."""
        *before, last = conversation(request)
        ended = request.turns[-1].ended
        return cls(request.sample_id, request.attempt, tuple(before), last["content"], ended)


@dataclass(frozen=True)
class RowScore:
    """The score of a row; it may be NaN or infinite."""

    sample_id: str  # of the row
    attempt: int  # of the row
    value: float


class RewardModel:
    """``tiny-reward-llama`` or the model of a local folder, on ``cpu`` or ``cuda``.

    On a GPU a sleeping model's weights are in the memory of the CPU. On a CPU they are in no
    memory, and are loaded again, or created again from the seed.

    Raises:
        ConfigError: The folder has no tokenizer, or no model with one label and a head ``score``.
    """

    def __init__(self, model_name: str, seed: int, device: str) -> None:
        self._name, self._seed, self._device = model_name, seed, torch.device(device)
        self._tokenizer = _tokenizer(model_name)
        self._model: PreTrainedModel | None = _load(model_name, seed)
        text_config = self._model.config.get_text_config()
        self._longest: int | None = getattr(text_config, "max_position_embeddings", None)
        self._digest = weights_digest(self._model.state_dict())
        self._asleep = self._device.type != "cpu"
        self.wake()

    def score(self, rows: Sequence[RowToScore]) -> list[RowScore]:
        """Score the rows in one forward pass; wake up if asleep.

        Raises:
            RewardFailure: A row is longer than the model allows.
        """
        self.wake()
        assert self._model is not None  # awake
        ids = [self._ids(row) for row in rows]
        lengths = torch.tensor([len(each) for each in ids])
        padded = nn.utils.rnn.pad_sequence(
            ids, batch_first=True, padding_value=int(self._tokenizer.pad_token_id)
        )
        mask = torch.arange(padded.shape[1]) < lengths[:, None]
        with torch.inference_mode():
            hidden: Tensor = self._model.base_model(
                input_ids=padded.to(self._device),
                attention_mask=mask.to(self._device, torch.int64),
                use_cache=False,
            ).last_hidden_state
            last = hidden[torch.arange(len(rows)), lengths - 1]
            scores: list[float] = _head(self._model)(last)[:, 0].float().tolist()
        return [
            RowScore(row.sample_id, row.attempt, value)
            for row, value in zip(rows, scores, strict=True)
        ]

    def sleep(self) -> int:
        """Free the weights' memory on the device; return the number of bytes. Idempotent."""
        if self._model is None or self._asleep:
            return 0
        freed = self.held_bytes()
        self._asleep = True
        if self._device.type == "cpu":
            self._model = None
            gc.collect()  # modules of transformers refer to each other in circles
        else:
            nn.Module.to(self._model, "cpu")
            torch.cuda.empty_cache()
        return freed

    def wake(self) -> None:
        """Bring the weights back. Idempotent.

        Raises:
            ConfigError: The folder now has other weights, or none.
        """
        if not self._asleep:
            return
        if self._model is None:
            self._model = _load(self._name, self._seed)
            if weights_digest(self._model.state_dict()) != self._digest:
                self._model = None
                raise ConfigError(
                    f"reward_model.model_name {self._name}: expected the weights from before the "
                    "model slept; the folder has others: use a folder that nobody writes to"
                )
        else:
            nn.Module.to(self._model, self._device)
        self._asleep = False

    def held_bytes(self) -> int:
        """Return the bytes that weights and buffers take on the device."""
        if self._model is None or self._asleep:
            return 0
        tensors = [*self._model.parameters(), *self._model.buffers()]
        return sum({each.data_ptr(): each.nbytes for each in tensors}.values())

    def _ids(self, row: RowToScore) -> Tensor:
        """Encode a row."""
        tokenizer = self._tokenizer
        ids = tokenizer.encode(row.text, add_special_tokens=False)
        ended = [int(tokenizer.eos_token_id)] if row.ended else []
        prompt = log_input_ids(open_log(tokenizer, row.messages))
        whole = torch.cat([prompt, torch.tensor([*ids, *ended], dtype=torch.int64)])
        if self._longest is not None and len(whole) > self._longest:
            raise RewardFailure(
                f"{row.sample_id!r} has {len(whole)} tokens, and the reward model {self._name} "
                f"reads at most {self._longest}"
            )
        return whole


def _tokenizer(name: str) -> PreTrainedTokenizerBase:
    return character_tokenizer() if name == TINY_REWARD_MODEL else load_tokenizer(name)


def _load(name: str, seed: int) -> PreTrainedModel:
    """Load a model on the CPU, in evaluation mode and the data type of its folder."""
    if name == TINY_REWARD_MODEL:
        return tiny_reward_model(seed)
    key = f"reward_model.model_name {name!r}"
    if not Path(name).is_dir():
        raise ConfigError(
            f"{key} is neither {TINY_REWARD_MODEL} nor a local folder; models are not downloaded"
        )
    try:
        model: PreTrainedModel = AutoModelForSequenceClassification.from_pretrained(
            name, dtype="auto", local_files_only=True
        )
    except (OSError, ValueError) as error:
        first_line = str(error).strip().partition("\n")[0]
        raise ConfigError(f"{key}: can't load a model: {first_line}") from error
    if model.config.num_labels != 1 or not isinstance(_head(model), nn.Module):
        raise ConfigError(
            f"{key}: expected a causal model with one label and a head named score; got "
            f"{type(model).__name__} with {model.config.num_labels} labels"
        )
    model.train(False)
    return model


def _head(model: PreTrainedModel) -> Any:
    return getattr(model, "score", None)
