"""Calls of tools: text to messages and back, results, and what a wrong or repeated call gets."""

from __future__ import annotations

import json
from collections.abc import Mapping
from fractions import Fraction
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlconform.grpo.models import load_tokenizer, policy_turn
from rlconform.grpo.tools import (
    DigitCalls,
    HermesCalls,
    MalformedCall,
    Tool,
    ToolCall,
    ToolError,
)
from rlconform.grpo.tools.calculator import Calculator, evaluate
from rlconform.grpo.tools.call_runner import CallRunner

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.sampled_from(["</tool_call>", "<"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
CALLS = st.builds(ToolCall, st.text(min_size=1), st.dictionaries(st.text(), JSON, max_size=3))
CONTENT = st.text().filter(lambda text: "tool_call>" not in text)


@given(content=CONTENT, calls=st.lists(CALLS, max_size=3))
def test_hermes_calls_survive_text_and_message(content: str, calls: list[ToolCall]) -> None:
    form = HermesCalls()
    text = form.render(content, calls)
    assert form.parse(text) == (content, calls)
    message = form.message(text)
    assert form.text(message) == text
    assert [
        json.loads(call["function"]["arguments"]) for call in message.get("tool_calls", [])
    ] == [call.arguments for call in calls]


@given(expression=st.text("0123456789+-", min_size=1))
def test_digit_calls_survive_text_and_message(expression: str) -> None:
    form = DigitCalls()
    call = ToolCall("calculator", {"expression": expression})
    assert form.parse("?" + expression) == ("", [call])
    assert form.text(form.message("?" + expression)) == "?" + expression
    assert form.text(form.message(expression)) == expression


def test_tokens_to_a_call_and_back() -> None:
    tokenizer = load_tokenizer("tiny-llama", None)
    ids = tokenizer.encode("?3+4<end>", return_tensors="pt")[0]
    turn = policy_turn(tokenizer, [], ids)[-1]
    message = DigitCalls().message(turn["content"])
    assert message["tool_calls"][0]["function"] == {
        "name": "calculator",
        "arguments": '{"expression": "3+4"}',
    }
    again = tokenizer.encode(DigitCalls().text(message) + "<end>", return_tensors="pt")[0]
    assert again.tolist() == ids.tolist() == turn["token_ids"].tolist()


@pytest.mark.parametrize(
    "text",
    [
        "<tool_call>",
        "</tool_call>",
        "<tool_call>{</tool_call>",
        "<tool_call>[]</tool_call>",
        '<tool_call>{"arguments": {}}</tool_call>',
        '<tool_call>{"name": "a", "arguments": 3}</tool_call>',
        '<tool_call>{"name": 3}</tool_call>',
    ],
)
def test_a_malformed_call_is_named(text: str) -> None:
    with pytest.raises(MalformedCall, match="expected"):
        HermesCalls().parse(text)


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("3+4", 7),
        ("2*(3-5)", -4),
        ("7/2", Fraction(7, 2)),
        ("0.1+0.2", Fraction(3, 10)),
        ("-3", -3),
    ],
)
def test_the_calculator_is_exact(expression: str, value: Fraction) -> None:
    assert evaluate(expression) == value


@pytest.mark.parametrize(
    "expression",
    ["", "3+", "1/0", "2**9999", "abs(3)", "a", "'a'*3", "True", "(" * 190, "1+" * 150 + "1"],
)
def test_the_calculator_refuses_what_is_no_arithmetic(expression: str) -> None:
    with pytest.raises(ToolError):
        evaluate(expression)


class Counting(Tool):
    """Counts its calls."""

    name = "count"
    description = "Counts its calls."
    parameters: ClassVar[Mapping[str, Any]] = {"type": "object"}

    def __init__(self) -> None:
        self.calls = 0

    def run(self, _: Mapping[str, Any]) -> str:
        self.calls += 1
        return str(self.calls)


def call(name: str, **arguments: Any) -> str:
    return HermesCalls().render("", [ToolCall(name, arguments)])


def test_a_call_that_repeats_is_not_run_again() -> None:
    tool = Counting()
    runner = CallRunner([tool], HermesCalls())
    first = call("count", a=1, b=2)
    assert runner.run(first).texts == ("1",)
    again = runner.run(call("count", b=2, a=1), [first])
    assert (again.calls, again.repeated, tool.calls) == (0, 1, 1)
    assert runner.run(call("count", a=1), [first]).texts == ("2",)
    twice = runner.run(first + first)
    assert (twice.calls, twice.repeated, tool.calls) == (1, 1, 3)


def test_wrong_calls_are_answered_and_counted() -> None:
    runner = CallRunner([Calculator()], HermesCalls())
    results = runner.run(call("calculator", expression="1/0") + call("search", query="a"))
    assert (results.calls, results.failed) == (2, 2)
    unknown = "expected one of the tools ['calculator']; got search"
    assert results.texts == ("1/0 divides by 0", unknown)
    assert runner.run("<tool_call>").failed == 1
    assert runner.run("the answer is 7").texts == ()
