"""Message logs: a row's turns with roles and token ids; the ids, concatenated, are ``input_ids``.

    open_log          <user>3+4<end><assistant>      the problem and the start of a response
    policy_turn       7<end>                         the tokens from the generation engine
    environment_turn  <environment>-<end><assistant> the observation and the start of a response

Results of tools are messages of the role ``tool`` if the chat template knows it, and are else the
environment's, as all observations are. Several results of one turn are several messages, whose
tokens are one turn of the log, because templates may put a frame around all of them.

A turn is a dict with ``role``, ``content`` (text) and ``token_ids`` (int64 (j,)). The policy's
tokens are stored as generated: decoding and encoding them again could change them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from rlconform.wire.message_logs import TOKEN_IDS, MessageLog

ASSISTANT = "assistant"
ENVIRONMENT = "environment"
TOOL = "tool"


def open_log(
    tokenizer: PreTrainedTokenizerBase, messages: Sequence[Mapping[str, str]]
) -> MessageLog:
    """Encode a problem's messages (``system``, ``user``), followed by the start of a response.

    Raises:
        ValueError: There are no messages, or the template changes earlier messages.
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
    """Append the policy's turn to the log; ``token_ids`` is (j,) int64, including any end token.

    The text omits only the final end token. It keeps other markers, so that a response with a
    marker is not equal to the answer.
    """
    text = tokenizer.decode(token_ids[:-1] if _ended(tokenizer, token_ids) else token_ids)
    return [*log, {"role": ASSISTANT, "content": str(text), TOKEN_IDS: token_ids}]


def environment_turn(
    tokenizer: PreTrainedTokenizerBase,
    log: MessageLog,
    content: str,
    tool_results: Sequence[str] = (),
) -> MessageLog:
    """Append the environment's turn to the log, followed by the start of a response.

    ``tool_results`` are what ``content`` is made of, if tools have answered.

    Tokens that the template has between the policy's last token and the observation belong to the
    environment's turn, including the end token if the response was cut off before it.

    Raises:
        ValueError: The template changes earlier turns.
    """
    observation = {"role": ENVIRONMENT, "content": content}
    messages = [observation]
    if tool_results and knows_tools(str(tokenizer.get_chat_template())):
        observation["role"] = TOOL
        messages = [{"role": TOOL, "content": result} for result in tool_results]
    before = _render(tokenizer, log, opening=False)
    after = _render(tokenizer, [*log, *messages], opening=True)
    closing = _closing(tokenizer, before, ended=_ended(tokenizer, log[-1][TOKEN_IDS]))
    return [*log, _turn(tokenizer, observation, closing + _after(before, after))]


@lru_cache(maxsize=8)
def knows_tools(template: str) -> bool:
    """Whether a chat template treats messages of the role ``tool``, which it then names.

    A template that puts any role between its markers is not enough: no model has learned it.
    """
    return re.search(r"""(['"])tool\1""", template) is not None


def log_input_ids(log: MessageLog) -> Tensor:
    """Concatenate the token ids of all turns to (L,) int64."""
    return torch.cat([turn[TOKEN_IDS] for turn in log])


def _ended(tokenizer: PreTrainedTokenizerBase, token_ids: Tensor) -> bool:
    return len(token_ids) > 0 and int(token_ids[-1]) == tokenizer.eos_token_id


def _render(
    tokenizer: PreTrainedTokenizerBase, turns: Sequence[Mapping[str, Any]], *, opening: bool
) -> str:
    """Render turns as text; the role ``environment`` becomes ``user`` if the tokenizer lacks it."""
    has_environment = f"<{ENVIRONMENT}>" in tokenizer.get_vocab()
    roles = {} if has_environment else {ENVIRONMENT: "user"}
    plain = [
        {"role": roles.get(turn["role"], turn["role"]), "content": turn["content"]}
        for turn in turns
    ]
    text = tokenizer.apply_chat_template(plain, tokenize=False, add_generation_prompt=opening)
    return str(text)


def _closing(tokenizer: PreTrainedTokenizerBase, rendered: str, *, ended: bool) -> str:
    """Return the text after the last response; unless ``ended``, it includes the end token."""
    _, end, rest = rendered.rpartition(str(tokenizer.eos_token))
    if not end:  # a template that ends no turn
        return ""
    return rest if ended else end + rest


def _after(before: str, whole: str) -> str:
    if not whole.startswith(before):
        raise ValueError(
            "the chat template changes earlier turns when a turn is added, so turns can't be "
            "encoded one by one"
        )
    return whole.removeprefix(before)


def _turn(
    tokenizer: PreTrainedTokenizerBase, message: Mapping[str, str], text: str
) -> dict[str, Any]:
    ids = tokenizer.encode(text, add_special_tokens=False)
    return {**message, TOKEN_IDS: torch.tensor(ids, dtype=torch.int64)}
