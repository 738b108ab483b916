from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tokenizers import Tokenizer, decoders, models, normalizers
from transformers import PreTrainedTokenizerFast

from headwise.core.errors import DataError
from headwise.model.tokens import _byte_alphabet, is_chat, readable_tokens, token_ids

HELLO = [{"role": "user", "content": "the cat"}]


def test_the_byte_alphabet_is_whole() -> None:
    assert sorted(_byte_alphabet().values()) == list(range(256))
    assert (_byte_alphabet()["Ġ"], _byte_alphabet()["Ċ"]) == (ord(" "), ord("\n"))


def test_readable_bytes(tokenizer: Any) -> None:
    ids = token_ids(tokenizer, "cat the cat\n\n<s>東")
    assert readable_tokens(tokenizer, ids) == [
        "cat", " the", " ", "cat", "\n\n", "<s>", "\\xe6", "\\x9d", "\\xb1",
    ]  # fmt: skip


def test_equal_tokens_stay_separate(tokenizer: Any) -> None:
    assert readable_tokens(tokenizer, token_ids(tokenizer, "catcatcat")) == ["cat", "cat", "cat"]


def test_ids_without_a_word(tokenizer: Any) -> None:
    assert readable_tokens(tokenizer, [299]) == ["<299>"]


def test_readable_sentencepiece() -> None:
    words = {"<unk>": 0, "▁the": 1, "▁cat": 2, "s": 3, "<0x0A>": 4, "<0xE6>": 5, "<s>": 6}
    backend = Tokenizer(models.BPE(words, [], byte_fallback=True, unk_token="<unk>"))
    backend.normalizer = normalizers.Replace(" ", "▁")
    backend.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, bos_token="<s>", unk_token="<unk>")
    assert readable_tokens(tokenizer, [6, 1, 2, 3, 4, 5]) == ["<s>", " the", " cat", "s", "\n", "\\xe6"]


@pytest.mark.parametrize("first", [False, True])
def test_never_two_first_tokens(make_tokenizer: Callable[..., Any], first: bool) -> None:
    tokenizer = make_tokenizer(first=first)
    assert token_ids(tokenizer, "cat").count(1) == int(first)
    assert token_ids(tokenizer, "<s>cat") == [1, tokenizer.convert_tokens_to_ids("cat")]
    chat = token_ids(tokenizer, HELLO)
    assert chat.count(1) == 1
    assert chat[0] == 1


def test_two_that_the_writer_wants_are_kept(make_tokenizer: Callable[..., Any]) -> None:
    assert token_ids(make_tokenizer(), "<s><s>cat")[:3].count(1) == 2


def test_the_assistant_speaks_next_unless_it_spoke_last(tokenizer: Any) -> None:
    def text(chat: Any, **options: Any) -> str:
        return "".join(readable_tokens(tokenizer, token_ids(tokenizer, chat, **options)))

    answered = [*HELLO, {"role": "assistant", "content": "sat"}]
    assert text(HELLO) == "<s>[user] the cat</s>[assistant] "
    assert text(answered) == "<s>[user] the cat</s>[assistant] sat</s>"
    assert text(HELLO, generation_prompt=False) == "<s>[user] the cat</s>"


def test_what_is_a_chat() -> None:
    assert is_chat(HELLO)
    assert not any(is_chat(item) for item in ("text", ["text"], [HELLO], [], [1, 2]))


def test_refusals(make_tokenizer: Callable[..., Any]) -> None:
    with pytest.raises(DataError, match="has no chat template, so it cannot encode a chat; give a plain text"):
        token_ids(make_tokenizer(chat=None), HELLO)
    with pytest.raises(DataError, match=r"A text or a chat .* is expected, not a int"):
        token_ids(make_tokenizer(), 3)  # type: ignore[arg-type]
