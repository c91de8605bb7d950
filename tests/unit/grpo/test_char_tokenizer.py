"""The character tokenizer, and the token ids of message logs."""

from __future__ import annotations

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast
from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from rlconform.grpo.models import (
    character_tokenizer,
    environment_turn,
    log_input_ids,
    open_log,
    policy_turn,
)
from rlconform.grpo.models.char_tokenizer import CHARACTERS, END, MARKERS, PAD, ROLES, UNKNOWN
from rlconform.grpo.models.message_log import knows_tools
from rlconform.wire import rebuild_message_logs, strip_message_logs
from rlconform.wire.message_logs import MessageLog

QUESTION = [{"role": "user", "content": "3+4"}]


def policy_ids(log: MessageLog) -> torch.Tensor:
    """The token ids of all turns of the policy."""
    return torch.cat([turn["token_ids"] for turn in log if turn["role"] == "assistant"])


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerBase:
    return character_tokenizer()


def ids(tokenizer: PreTrainedTokenizerBase, text: str) -> torch.Tensor:
    return torch.tensor(tokenizer.encode(text, add_special_tokens=False))


def test_every_character_and_every_marker_is_one_token(tokenizer: PreTrainedTokenizerBase) -> None:
    tokens = [*MARKERS, *CHARACTERS]
    assert len(tokenizer) == len(tokens)
    for number, token in enumerate(tokens):
        assert tokenizer.encode(token, add_special_tokens=False) == [number]
        assert tokenizer.decode([number]) == token


def test_text_comes_back(tokenizer: PreTrainedTokenizerBase) -> None:
    text = f"<user>{CHARACTERS}{END}<assistant>"
    assert tokenizer.decode(tokenizer.encode(text, add_special_tokens=False)) == text


def test_a_character_that_has_no_token_becomes_unknown(tokenizer: PreTrainedTokenizerBase) -> None:
    assert tokenizer.convert_ids_to_tokens(tokenizer.encode("1文2")) == ["1", UNKNOWN, "2"]


def test_pad_and_end_are_tokens_of_their_own(tokenizer: PreTrainedTokenizerBase) -> None:
    assert (tokenizer.pad_token, tokenizer.eos_token) == (PAD, END)
    assert tokenizer.pad_token_id != tokenizer.eos_token_id


def test_a_log_opens_with_the_problem_and_the_policys_turn(
    tokenizer: PreTrainedTokenizerBase,
) -> None:
    (turn,) = open_log(tokenizer, QUESTION)
    assert (turn["role"], turn["content"]) == ("user", "3+4")
    assert turn["token_ids"].dtype == torch.int64
    assert tokenizer.decode(turn["token_ids"]) == "<user>3+4<end><assistant>"


def test_a_system_prompt_is_a_turn_of_its_own(tokenizer: PreTrainedTokenizerBase) -> None:
    log = open_log(tokenizer, [{"role": "system", "content": "?"}, *QUESTION])
    texts = [tokenizer.decode(turn["token_ids"]) for turn in log]
    assert texts == ["<system>?<end>", "<user>3+4<end><assistant>"]


def test_a_log_needs_a_message(tokenizer: PreTrainedTokenizerBase) -> None:
    with pytest.raises(ValueError, match="at least one message"):
        open_log(tokenizer, [])


def test_the_policys_tokens_stay_as_they_were_drawn(tokenizer: PreTrainedTokenizerBase) -> None:
    drawn = ids(tokenizer, "7<end>")
    log = policy_turn(tokenizer, open_log(tokenizer, QUESTION), drawn)
    assert torch.equal(log[-1]["token_ids"], drawn)
    assert (log[-1]["role"], log[-1]["content"]) == ("assistant", "7")


@pytest.mark.parametrize(
    ("drawn", "text"),
    [("7", "7"), ("<user>7<end>", "<user>7"), ("7<end><end>", "7<end>"), ("<end>", ""), ("", "")],
)
def test_only_the_last_end_token_is_left_out_of_the_text(
    tokenizer: PreTrainedTokenizerBase, drawn: str, text: str
) -> None:
    log = policy_turn(tokenizer, open_log(tokenizer, QUESTION), ids(tokenizer, drawn).long())
    assert log[-1]["content"] == text


def several_turns(tokenizer: PreTrainedTokenizerBase) -> list[dict[str, object]]:
    log = open_log(tokenizer, [{"role": "user", "content": "?"}])
    log = policy_turn(tokenizer, log, ids(tokenizer, "5<end>"))
    log = environment_turn(tokenizer, log, "+")
    return policy_turn(tokenizer, log, ids(tokenizer, "7<end>"))


def test_turns_end_to_end_are_the_row(tokenizer: PreTrainedTokenizerBase) -> None:
    log = several_turns(tokenizer)
    assert [turn["role"] for turn in log] == ["user", "assistant", "environment", "assistant"]
    text = "<user>?<end><assistant>5<end><environment>+<end><assistant>7<end>"
    assert tokenizer.decode(log_input_ids(log)) == text
    assert torch.equal(log_input_ids(log), ids(tokenizer, text))


def test_the_policys_turns_have_the_policys_tokens_alone(
    tokenizer: PreTrainedTokenizerBase,
) -> None:
    assert tokenizer.decode(policy_ids(several_turns(tokenizer))) == "5<end>7<end>"


def test_a_turn_leaves_the_log_it_was_given_alone(tokenizer: PreTrainedTokenizerBase) -> None:
    log = open_log(tokenizer, QUESTION)
    policy_turn(tokenizer, log, ids(tokenizer, "7<end>"))
    assert len(log) == 1


def test_logs_travel_as_spans_of_their_row(tokenizer: PreTrainedTokenizerBase) -> None:
    log = several_turns(tokenizer)
    (rebuilt,) = rebuild_message_logs(strip_message_logs([log]), log_input_ids(log)[None])
    for turn, original in zip(rebuilt, log, strict=True):
        assert torch.equal(turn["token_ids"], original["token_ids"])
        assert turn["content"] == original["content"]


def without_roles(template: str) -> PreTrainedTokenizerBase:
    """A tokenizer like those of real models, without rlconform's role markers in its vocabulary."""
    vocabulary = {token: number for number, token in enumerate(("?", "end", *"uat:+34"))}
    words = Tokenizer(models.WordLevel(vocabulary, unk_token="?"))
    words.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    words.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=words, eos_token="end", unk_token="?", chat_template=template
    )


def test_where_no_role_is_the_environments_it_speaks_as_the_user() -> None:
    plain = without_roles(
        "{% for message in messages %}{{ message['role'][0] + ':' + message['content'] }}"
        "{% endfor %}{% if add_generation_prompt %}{{ 'a:' }}{% endif %}"
    )
    log = environment_turn(
        plain, policy_turn(plain, open_log(plain, QUESTION), ids(plain, "7end")), "+"
    )
    assert log[-1]["role"] == "environment"
    assert plain.decode(log[-1]["token_ids"]) == "u:+a:"


#: As Qwen's: results of tools that follow each other are framed together, as the user's.
WITH_TOOLS = """{% for message in messages %}{% if message.role == "tool" %}{% if
loop.first or messages[loop.index0 - 1].role != "tool" %}u:{% endif %}t{{ message.content }}t{% if
loop.last or messages[loop.index0 + 1].role != "tool" %}end{% endif %}{% else
%}{{ message.role[0] + ':' + message.content + 'end' }}{% endif %}{% endfor %}{% if
add_generation_prompt %}a:{% endif %}"""


def test_results_of_tools_have_the_role_tool_where_the_template_names_it() -> None:
    """Each is a message, also in a second turn, and the policy's tokens stay as they were."""
    plain = without_roles(WITH_TOOLS)
    log = policy_turn(plain, open_log(plain, QUESTION), ids(plain, "+end"))
    log = environment_turn(plain, log, "3\n4", ("3", "4"))
    log = policy_turn(plain, log, ids(plain, "44"))  # cut off before its end token
    log = environment_turn(plain, log, "34", ("34",))
    assert [turn["role"] for turn in log] == ["user", "assistant", "tool", "assistant", "tool"]
    assert [turn["content"] for turn in log[2::2]] == ["3\n4", "34"]
    turns = ["u:3+4enda:", "+end", "u:t3tt4tenda:", "44", "endu:t34tenda:"]
    assert [plain.decode(turn["token_ids"]) for turn in log] == turns


@pytest.mark.parametrize("results", [(), ("+",)])
def test_other_observations_and_results_without_that_role_are_the_environments(
    results: tuple[str, ...], tokenizer: PreTrainedTokenizerBase
) -> None:
    knowing = without_roles(WITH_TOOLS)
    log = policy_turn(knowing, open_log(knowing, QUESTION), ids(knowing, "3end"))
    assert environment_turn(knowing, log, "+")[-1]["role"] == "environment"
    log = policy_turn(tokenizer, open_log(tokenizer, QUESTION), ids(tokenizer, "5<end>"))
    log = environment_turn(tokenizer, log, "+", results)
    assert log[-1]["role"] == "environment"
    assert tokenizer.decode(log[-1]["token_ids"]) == "<environment>+<end><assistant>"


def test_a_template_knows_tools_if_it_names_their_role() -> None:
    assert knows_tools(WITH_TOOLS)
    assert knows_tools("{% if m['role'] == 'tool' %}")
    assert not knows_tools("{{ message['role'] }}{{ message['tool_calls'] }}{% if tools %}")


@pytest.mark.parametrize("drawn", ["34end", "34"])
def test_what_a_template_has_behind_a_response_is_in_the_row_once(drawn: str) -> None:
    """Qwen's template, for example, has a line break after each turn's end token."""
    plain = without_roles(
        "{% for message in messages %}{{ message['role'][0] + ':' + message['content'] + 'end+' }}"
        "{% endfor %}{% if add_generation_prompt %}{{ 'a:' }}{% endif %}"
    )
    log = policy_turn(plain, open_log(plain, QUESTION), ids(plain, drawn))
    log = environment_turn(plain, log, "4")
    assert plain.decode(log_input_ids(log)) == "u:3+4end+a:34end+u:4end+a:"
    assert plain.decode(policy_ids(log)) == drawn


def test_a_template_that_rewrites_earlier_turns_is_refused() -> None:
    rewriting = character_tokenizer()
    rewriting.chat_template = "{{ messages | length }}{{ messages[-1]['content'] }}"
    log = open_log(rewriting, QUESTION)
    with pytest.raises(ValueError, match="changes earlier turns"):
        environment_turn(rewriting, log, "+")


def test_the_roles_are_those_of_the_markers() -> None:
    assert [f"<{role}>" for role in ROLES] == list(MARKERS[3:])
