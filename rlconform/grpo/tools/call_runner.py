"""``CallRunner``: runs the calls of a turn, and answers those that can't be run.

    text of the policy ── parse ──▶ calls ── each: known? new in this row? ──▶ tool ──▶ its text

A wrong call never fails the row: the policy reads what was wrong and may go on. A call that the row
made before is not run again; a policy that repeats itself would spend its turns on nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rlconform.grpo.tools.base import Tool, ToolError
from rlconform.grpo.tools.tool_calls import MalformedCall, ToolCall, ToolFormat


@dataclass(frozen=True)
class CallResults:
    """What the calls of a turn gave: a text per call, none if the turn has no call."""

    texts: tuple[str, ...] = ()
    calls: int = 0  # that were run
    repeated: int = 0  # that the row had made before
    failed: int = 0  # malformed, unknown, or refused by their tool


class CallRunner:
    """Runs calls of a set of tools; several threads may use it."""

    def __init__(self, tools: Iterable[Tool], form: ToolFormat) -> None:
        self._tools = {tool.name: tool for tool in tools}
        self._form = form

    def run(self, text: str, earlier: Sequence[str] = ()) -> CallResults:
        """Run the calls of the policy's text; ``earlier`` are its texts before, in this row."""
        try:
            _, calls = self._form.parse(text)
        except MalformedCall as error:
            return CallResults((self._form.error(str(error)),), failed=1)
        if not calls:
            return CallResults()
        made = {call.key for before in earlier for call in self._calls(before)}
        ran = repeated = failed = 0
        answers: list[str] = []
        for call in calls:
            if call.key in made:
                repeated += 1
                again = f"expected a new call; {call.name} was called like this before"
                answers.append(self._form.error(again))
                continue
            made.add(call.key)
            ran += 1
            try:
                answers.append(self._run(call))
            except ToolError as error:
                failed += 1
                answers.append(self._form.error(str(error)))
        return CallResults(tuple(answers), ran, repeated, failed)

    def repeated(self, text: str, earlier: Sequence[str]) -> int:
        """Count the calls of a text that were made in earlier texts, or twice in it."""
        made = [call.key for before in earlier for call in self._calls(before)]
        keys = [call.key for call in self._calls(text)]
        return sum(key in {*made, *keys[:number]} for number, key in enumerate(keys))

    def _calls(self, text: str) -> list[ToolCall]:
        try:
            return self._form.parse(text)[1]
        except MalformedCall:
            return []

    def _run(self, call: ToolCall) -> str:
        tool = self._tools.get(call.name)
        if tool is None:
            raise ToolError(f"expected one of the tools {sorted(self._tools)}; got {call.name}")
        return tool.run(call.arguments)
