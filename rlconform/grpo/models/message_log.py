"""Message logs: a row as turns with roles, whose token ids, end to end, are its ``input_ids``.

    open_log          <user>3+4<end><assistant>      the problem, and the opening of a response
    policy_turn       7<end>                         the tokens as the engine drew them
    environment_turn  <environment>-<end><assistant> the answer, and the opening of the next one

A turn is a dict with ``role``, ``content`` (text) and ``token_ids`` (int64 (j,)). The policy is
trained on its own tokens and no others: these are never decoded and encoded again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from rlconform.wire.message_logs import TOKEN_IDS, MessageLog

ASSISTANT = "assistant"
ENVIRONMENT = "environment"


def open_log(
    tokenizer: PreTrainedTokenizerBase, messages: Sequence[Mapping[str, str]]
) -> MessageLog:
    """A problem's messages with their token ids, the last one's with the opening of a response.

    Args:
        tokenizer: With a chat template.
        messages: ``role`` (``system`` or ``user``) and ``content`` of each, at least one.

    Raises:
        ValueError: No messages, or a template under which they don't follow one another.
    """
    if not messages:
        raise ValueError("a problem has at least one message")
    log: MessageLog = []
    rendered = ""
    for count, message in enumerate(messages, start=1):
        so_far = _render(tokenizer, messages[:count], opening=count == len(messages))
        log.append(_turn(tokenizer, message, _after(rendered, so_far)))
        rendered = so_far
    return log


def policy_turn(
    tokenizer: PreTrainedTokenizerBase, log: MessageLog, token_ids: Tensor
) -> MessageLog:
    """The log and, after it, what the policy wrote.

    Args:
        tokenizer: Decodes the text. A marker that the policy wrote stays in it, so that it doesn't
            pass for an answer; the end token alone is left out.
        log: The turns so far.
        token_ids: (j,) int64, with the end token where it was reached.
    """
    text = tokenizer.decode(token_ids[:-1] if _ended(tokenizer, token_ids) else token_ids)
    return [*log, {"role": ASSISTANT, "content": str(text), TOKEN_IDS: token_ids}]


def environment_turn(
    tokenizer: PreTrainedTokenizerBase, log: MessageLog, content: str
) -> MessageLog:
    """The log and, after it, what the environment answered, with the opening of a response.

    What the template has between the policy's last token and the answer is the environment's: the
    end token too, where the response was cut off before it.

    Raises:
        ValueError: A template under which the answer doesn't follow the log.
    """
    answer = {"role": ENVIRONMENT, "content": content}
    before = _render(tokenizer, log, opening=False)
    after = _render(tokenizer, [*log, answer], opening=True)
    closing = _closing(tokenizer, before, ended=_ended(tokenizer, log[-1][TOKEN_IDS]))
    return [*log, _turn(tokenizer, answer, closing + _after(before, after))]


def log_input_ids(log: MessageLog) -> Tensor:
    """(L,) int64: the turns' token ids, end to end."""
    return torch.cat([turn[TOKEN_IDS] for turn in log])


def log_token_mask(log: MessageLog) -> Tensor:
    """(L,) int32: 1 on the tokens that the policy wrote."""
    return torch.cat(
        [
            torch.full(turn[TOKEN_IDS].shape, turn["role"] == ASSISTANT, dtype=torch.int32)
            for turn in log
        ]
    )


def _ended(tokenizer: PreTrainedTokenizerBase, token_ids: Tensor) -> bool:
    return len(token_ids) > 0 and int(token_ids[-1]) == tokenizer.eos_token_id


def _render(
    tokenizer: PreTrainedTokenizerBase, turns: Sequence[Mapping[str, Any]], *, opening: bool
) -> str:
    """The turns as text. Templates of real models know no environment: it speaks as the user."""
    knows = f"<{ENVIRONMENT}>" in tokenizer.get_vocab()
    roles = {} if knows else {ENVIRONMENT: "user"}
    plain = [
        {"role": roles.get(turn["role"], turn["role"]), "content": turn["content"]}
        for turn in turns
    ]
    text = tokenizer.apply_chat_template(plain, tokenize=False, add_generation_prompt=opening)
    return str(text)


def _closing(tokenizer: PreTrainedTokenizerBase, rendered: str, *, ended: bool) -> str:
    """What a rendered log has behind its last response: of the end token on, or after it."""
    _, end, rest = rendered.rpartition(str(tokenizer.eos_token))
    if not end:  # a template that ends no turn
        return ""
    return rest if ended else end + rest


def _after(before: str, whole: str) -> str:
    if not whole.startswith(before):
        raise ValueError(
            "the chat template changes earlier turns as later ones come: turns can't be encoded "
            "one by one"
        )
    return whole.removeprefix(before)


def _turn(
    tokenizer: PreTrainedTokenizerBase, message: Mapping[str, str], text: str
) -> dict[str, Any]:
    ids = tokenizer.encode(text, add_special_tokens=False)
    return {**message, TOKEN_IDS: torch.tensor(ids, dtype=torch.int64)}
