"""Calls of tools in what the policy wrote: from text to messages, and back.

    tokens ── tokenizer ──▶ text ── parse ──▶ {"role": "assistant", "content", "tool_calls"}
                              ▲─── render ────┘

``parse(render(message)) == message`` for every message. For training the tokens stay those that
the policy wrote: nothing is encoded again.
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class ToolCall:
    """A call of a tool."""

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """A text that is equal for two calls if and only if they are the same call."""
        return json.dumps([self.name, self.arguments], sort_keys=True)


class MalformedCall(ValueError):
    """The text has the marks of a call but not its form; the policy may try again."""


class ToolFormat(ABC):
    """How calls are written in the policy's text."""

    def message(self, text: str) -> dict[str, Any]:
        """Convert the policy's text to a message in OpenAI's form.

        ``arguments`` is text with JSON, and ids number the calls of the turn. ``MalformedCall`` if
        a call can't be read.
        """
        content, calls = self.parse(text)
        message: dict[str, Any] = {"role": "assistant", "content": content}
        if calls:
            message["tool_calls"] = [
                {
                    "id": f"call_{number}",
                    "type": "function",
                    "function": {"name": call.name, "arguments": json.dumps(call.arguments)},
                }
                for number, call in enumerate(calls)
            ]
        return message

    def text(self, message: Mapping[str, Any]) -> str:
        """Convert a message in OpenAI's form to the text that means it; the reverse of ``message``.

        ``ValueError`` if this format can't write it.
        """
        calls = [
            ToolCall(call["function"]["name"], json.loads(call["function"]["arguments"]))
            for call in message.get("tool_calls", ())
        ]
        return self.render(message["content"], calls)

    def error(self, text: str) -> str:
        """Return what the policy reads instead of a result; by default the error's text."""
        return text

    @abstractmethod
    def parse(self, text: str) -> tuple[str, list[ToolCall]]:
        """Split a text into what is no call, and its calls; ``MalformedCall`` for a wrong call."""

    @abstractmethod
    def render(self, content: str, calls: Sequence[ToolCall]) -> str:
        """Write content and calls as text; ``ValueError`` if this format can't."""


class HermesCalls(ToolFormat):
    """JSON in ``<tool_call>`` tags after the content, as Hermes and Qwen models write calls.

    ::

        Let me compute.<tool_call>{"name": "calculator", "arguments": {"expression": "3+4"}}</tool_call>
    """  # noqa: E501 - the example is one line

    _OPEN, _CLOSE = "<tool_call>", "</tool_call>"
    _CALL = re.compile(r"<tool_call>\s*(.*?)\s*</tool_call>", re.DOTALL)

    def parse(self, text: str) -> tuple[str, list[ToolCall]]:
        """Read all calls; text between two calls belongs to the content."""
        content = self._CALL.sub("", text)
        if self._OPEN in content or self._CLOSE in content:
            raise MalformedCall(f"expected {self._OPEN} and {self._CLOSE} in pairs")
        return content, [self._call(body) for body in self._CALL.findall(text)]

    def render(self, content: str, calls: Sequence[ToolCall]) -> str:
        """Write the content and then the calls."""
        bodies = [
            json.dumps({"name": call.name, "arguments": call.arguments}).replace("<", "\\u003c")
            for call in calls
        ]
        if self._OPEN in content or self._CLOSE in content:
            raise ValueError(f"expected a content without {self._OPEN} and {self._CLOSE}")
        return content + "".join(f"{self._OPEN}{body}{self._CLOSE}" for body in bodies)

    @staticmethod
    def _call(body: str) -> ToolCall:
        try:
            call = json.loads(body)
        except json.JSONDecodeError as error:
            raise MalformedCall(f"expected JSON in a call: {error.msg}") from error
        if not isinstance(call, dict) or not isinstance(call.get("name"), str):
            raise MalformedCall("expected a call to be an object with a name")
        arguments = call.get("arguments", {})
        if not isinstance(arguments, dict):
            raise MalformedCall("expected the arguments of a call to be an object")
        return ToolCall(call["name"], arguments)


class DigitCalls(ToolFormat):
    """``?3+4`` is a call of the calculator, for tokenizers that know digits and signs only.

    A call that has no result is answered by ``?``.
    """

    _MARK, _TOOL, _ARGUMENT = "?", "calculator", "expression"

    def error(self, text: str) -> str:  # noqa: ARG002 - the tokenizer knows no letters
        """Return the mark."""
        return self._MARK

    def parse(self, text: str) -> tuple[str, list[ToolCall]]:
        """Read at most one call, which is the whole text."""
        if not text.startswith(self._MARK):
            return text, []
        expression = text.removeprefix(self._MARK)
        if not expression or self._MARK in expression:
            raise MalformedCall(f"expected {self._MARK} and an expression")
        return "", [ToolCall(self._TOOL, {self._ARGUMENT: expression})]

    def render(self, content: str, calls: Sequence[ToolCall]) -> str:
        """Write the content, or the one call."""
        if not calls and not content.startswith(self._MARK):
            return content
        match calls:
            case [ToolCall(self._TOOL, {self._ARGUMENT: str(text)})] if text and not content:
                return self._MARK + text
        raise ValueError("expected a content without a mark, or one call of the calculator alone")
