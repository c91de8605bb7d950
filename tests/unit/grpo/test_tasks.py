"""Tasks give reproducible problems and exact rewards."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlconform.contract import ConfigError
from rlconform.grpo.config import DataConfig
from rlconform.grpo.models.char_tokenizer import CHARACTERS
from rlconform.grpo.tasks import EnvStep, PolicyTurn, Problem, RolloutTask, Split, build_task
from rlconform.grpo.tasks.digits import credit
from rlconform.grpo.tasks.guess_digit import HIGHER, LOWER, NO_DIGIT
from rlconform.grpo.tasks.jsonl import last_number

MADE = ["emit", "copy", "sum", "sort", "guess"]


def made(task: str, seed: int = 0, split: Split = "train", **values: Any) -> RolloutTask:
    return build_task(DataConfig.model_validate({"task": task, **values}), seed, split)


def asked(problem: Problem) -> str:
    return problem.messages[-1]["content"]


def said(text: str, ended: bool = True) -> list[PolicyTurn]:
    return [PolicyTurn(text, ended)]


@pytest.mark.parametrize("name", MADE)
def test_a_number_decides_its_problem(name: str) -> None:
    one, other = (made(name, max_length=4) for _ in range(2))
    assert [one.problem(index) for index in range(20)] == [
        other.problem(index) for index in range(20)
    ]


@pytest.mark.parametrize("name", MADE)
def test_another_seed_and_another_split_have_other_problems(name: str) -> None:
    def drawn(seed: int, split: Split) -> list[tuple[str, str]]:
        task = made(name, seed, split, max_length=8)
        problems = [task.problem(index) for index in range(20)]
        return [(asked(problem), problem.answer) for problem in problems]

    assert drawn(0, "train") != drawn(1, "train")
    assert drawn(0, "train") != drawn(0, "val")


@pytest.mark.parametrize("name", MADE)
def test_uids_are_unique_over_problems_and_splits(name: str) -> None:
    uids = [made(name, split=split).problem(i).uid for split in ("train", "val") for i in range(30)]
    assert len(set(uids)) == 60


@pytest.mark.parametrize("name", MADE)
def test_problems_and_answers_have_tokens(name: str) -> None:
    task = made(name, max_length=5)
    for index in range(50):
        problem = task.problem(index)
        assert set(asked(problem)) | set(problem.answer) <= set(CHARACTERS)


@pytest.mark.parametrize("name", MADE)
def test_the_answer_is_worth_one(name: str) -> None:
    task = made(name, max_length=4)
    problem = task.problem(3)
    right = task.respond(problem, said(problem.answer))
    cut_off = task.respond(problem, said(problem.answer, ended=False))
    assert (right.reward, right.observation, cut_off.reward) == (1.0, None, 0.0)
    if name != "guess":  # its rewards are of several turns, without components
        assert right.components == {"correctness": 1.0, "format": 1.0}
        assert cut_off.components == {"correctness": 1.0, "format": 0.0}


def test_the_tasks_ask_what_they_are_called() -> None:
    for index in range(50):
        copy, sort, total, emit = (
            made(name, min_length=2, max_length=5, digits=6).problem(index)
            for name in ("copy", "sort", "sum", "emit")
        )
        assert copy.answer == asked(copy)
        assert sort.answer == "".join(sorted(asked(sort)))
        assert total.answer == str(sum(map(int, asked(total).split("+"))) % 6)
        assert emit.answer == "7"
        assert 2 <= len(asked(copy)) <= 5
        assert set(asked(copy)) <= set("012345")


def test_every_length_and_every_digit_comes_up() -> None:
    task = made("copy", min_length=1, max_length=3, digits=4)
    asks = [asked(task.problem(index)) for index in range(200)]
    assert {len(text) for text in asks} == {1, 2, 3}
    assert set("".join(asks)) == set("0123")


@pytest.mark.parametrize(
    ("text", "ended", "exact", "partial"),
    [
        ("413", True, 1.0, 1.0),
        ("413", False, 0.0, 3 / 4),
        ("4135", True, 0.0, 3 / 4),
        ("41", True, 0.0, 2 / 4),
        ("423", True, 0.0, 1 / 4),
        ("513", True, 0.0, 0.0),
        ("", True, 0.0, 0.0),
        (" 413", True, 0.0, 0.0),
        ("<user>413", True, 0.0, 0.0),
    ],
)
def test_credit(text: str, ended: bool, exact: float, partial: float) -> None:
    turn = PolicyTurn(text, ended)
    assert credit("413", turn, partial=False) == exact
    assert credit("413", turn, partial=True) == partial


@given(
    answer=st.text("0123", min_size=1, max_size=5),
    text=st.text("0123", max_size=7),
    ended=st.booleans(),
)
def test_credit_is_whole_for_the_answer_and_less_for_all_else(
    answer: str, text: str, ended: bool
) -> None:
    turn = PolicyTurn(text, ended)
    for partial in (False, True):
        earned = credit(answer, turn, partial)
        assert 0 <= earned <= 1
        assert (earned == 1) == (ended and text == answer)


def test_a_guess_is_answered_until_it_is_right() -> None:
    task = made("guess")
    problem = next(p for p in map(task.problem, range(100)) if p.answer == "7")
    assert problem.answer not in asked(problem)
    turns = said("5")
    assert task.respond(problem, turns) == EnvStep(0.0, HIGHER)
    turns += said("8")
    assert task.respond(problem, turns) == EnvStep(0.0, LOWER)
    turns += said("7")
    assert task.respond(problem, turns) == EnvStep(1.0)


@pytest.mark.parametrize("text", ["", "77", "+", "\N{ARABIC-INDIC DIGIT SEVEN}"])
def test_what_is_no_digit_is_told_so(text: str) -> None:
    task = made("guess")
    problem = next(p for p in map(task.problem, range(100)) if p.answer == "7")
    assert task.respond(problem, said(text)) == EnvStep(0.0, NO_DIGIT)


def test_a_guess_that_was_cut_off_ends_the_row() -> None:
    task = made("guess")
    problem = task.problem(0)
    assert task.respond(problem, said(problem.answer, ended=False)) == EnvStep(0.0)


def write(folder: Path, *rows: object) -> str:
    path = folder / "problems.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def lines(count: int) -> list[dict[str, str]]:
    return [{"question": f"q{n}", "answer": f"because #### {n}"} for n in range(count)]


def test_a_file_is_read_epoch_after_epoch(tmp_path: Path) -> None:
    task = made("jsonl", path=write(tmp_path, *lines(7)))
    assert task.size == 7
    asks = [asked(task.problem(index)) for index in range(21)]
    epochs = [asks[start : start + 7] for start in (0, 7, 14)]
    assert all(sorted(epoch) == [f"q{n}" for n in range(7)] for epoch in epochs)
    assert epochs[0] != epochs[1]
    assert asked(task.problem(0)) == asks[0]  # a return to this epoch draws the same order
    assert len({task.problem(index).uid for index in range(21)}) == 21


def test_each_problem_has_the_source_and_the_extra_info_of_its_own_line(tmp_path: Path) -> None:
    own = {"data_source": "gsm8k", "extra_info": {"level": [2]}}
    path = write(tmp_path, {**lines(1)[0], **own}, *lines(2)[1:])
    task = made("jsonl", path=path, shuffle=False)
    first, second, again = (task.problem(index) for index in range(3))
    assert (first.data_source, first.extra_info) == ("gsm8k", {"level": [2]})
    assert (second.data_source, second.extra_info) == ("jsonl", {})
    assert (again.data_source, again.extra_info) == (first.data_source, first.extra_info)
    assert made("copy").problem(0).data_source == "copy"


def test_validation_keeps_the_files_order_and_has_a_file_of_its_own(tmp_path: Path) -> None:
    path = write(tmp_path, *lines(4))
    task = made("jsonl", split="val", path="/nowhere", val_path=path)
    assert [asked(task.problem(index)) for index in range(5)] == ["q0", "q1", "q2", "q3", "q0"]


def test_validation_without_a_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"data\.val_path"):
        made("jsonl", split="val", path=write(tmp_path, *lines(1)))


def test_a_system_prompt_comes_first(tmp_path: Path) -> None:
    task = made("jsonl", path=write(tmp_path, *lines(1)), system_prompt="Reckon.")
    roles = [message["role"] for message in task.problem(0).messages]
    assert roles == ["system", "user"]


@pytest.mark.parametrize(
    ("response", "reward"),
    [
        ("so it is #### 1000", 1.0),
        ("so it is 1,000.", 1.0),
        ("5 + 995 = $1000.00", 1.0),
        ("#### 1000, not 7", 0.0),
        ("1000 or 7", 0.0),
        ("-1000", 0.0),
        ("1000.5", 0.0),
        ("none", 0.0),
        ("", 0.0),
    ],
)
def test_the_last_number_counts_by_its_value(tmp_path: Path, response: str, reward: float) -> None:
    row = {"question": "?", "answer": "10 * 100 #### 1,000"}
    task = made("jsonl", path=write(tmp_path, row))
    assert task.respond(task.problem(0), said(response)) == EnvStep(reward)


@given(number=st.decimals(-(10**9), 10**9, places=3))
def test_a_number_is_read_back_with_and_without_commas(number: Decimal) -> None:
    assert last_number(f"12 then {number}") == number
    assert last_number(f"12 then {number:,}") == number


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "line 1: not JSON"),
        ("[1]", "line 1: expected an object"),
        ('{"question": "q"}', "line 1: answer must be a string"),
        ('{"question": 3, "answer": "4"}', "line 1: question must be a string"),
        ('{"question": "q", "answer": "none"}', "line 1: there is no number"),
        ('{"question": "q", "answer": "4", "data_source": 3}', "line 1: expected data_source as"),
        ('{"question": "q", "answer": "4", "extra_info": []}', "line 1: expected .*extra_info as"),
        ("\n\n", "no problems"),
    ],
)
def test_a_file_that_cannot_be_used_says_where(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "problems.jsonl"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message):
        made("jsonl", path=str(path))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nothing\.jsonl"):
        made("jsonl", path=str(tmp_path / "nothing.jsonl"))


@pytest.mark.parametrize("name", MADE)
def test_problems_are_numbered_from_zero(name: str) -> None:
    with pytest.raises(ValueError, match="at least 0"):
        made(name).problem(-1)
