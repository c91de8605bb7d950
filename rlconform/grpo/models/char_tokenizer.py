"""A character tokenizer, created in code: every character is a token, and so is every marker.

    <user>3+4<end><assistant>      a prompt: the user's turn and the start of the policy's
    7<end>                         a response

It is a tokenizer of transformers with a chat template, so code that works with it also works with
the tokenizer of a real model.
"""

from __future__ import annotations

from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

PAD = "<pad>"
END = "<end>"
UNKNOWN = "<unk>"
ROLES = ("system", "user", "assistant", "environment")
MARKERS = (PAD, END, UNKNOWN, *(f"<{role}>" for role in ROLES))
#: A small vocabulary, from which an untrained policy samples uniformly.
CHARACTERS = "0123456789+-=?"

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<' + message['role'] + '>' + message['content'] + '" + END + "' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<assistant>' }}{% endif %}"
)


def character_tokenizer() -> PreTrainedTokenizerFast:
    """Create the tokenizer: ``MARKERS``, then ``CHARACTERS``; other characters are ``<unk>``."""
    vocabulary = {token: index for index, token in enumerate((*MARKERS, *CHARACTERS))}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=UNKNOWN))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    tokenizer.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=tokenizer,
        pad_token=PAD,
        eos_token=END,
        unk_token=UNKNOWN,
        additional_special_tokens=[f"<{role}>" for role in ROLES],
        chat_template=CHAT_TEMPLATE,
        clean_up_tokenization_spaces=False,
    )
