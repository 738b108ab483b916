"""Which tokens are punctuation or line ends, whatever the tokenizer writes them as."""

from __future__ import annotations

import pytest
from planted import SPECIAL, tiny_tokenizer
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from headwise.corpora import delimiter_ids
from headwise.corpora.delimiters import is_delimiter


@pytest.mark.parametrize(
    "text", [".", ",", "...", " (", "\n", "\n\n", " \n", ".\n", "?!", "—", "。", "«", '"', "_", "\r\n"]
)
def test_punctuation_and_line_ends_are(text: str) -> None:
    assert is_delimiter(text)


@pytest.mark.parametrize("text", ["", " ", "\t", "  ", "a", "a.", "1", "+", "=", "$", "|", "é", "中", ".5"])
def test_words_blanks_and_signs_are_not(text: str) -> None:
    assert not is_delimiter(text)


def test_whole_word_tokens() -> None:
    tokenizer = tiny_tokenizer()
    found = set(tokenizer.convert_ids_to_tokens(sorted(delimiter_ids(tokenizer))))
    assert found == {"\n", *".,;:!?-()'\"/"}


def test_byte_level_tokens_are_read_as_what_they_stand_for() -> None:
    """Byte-level vocabularies spell a blank Ġ and a line end Ċ; a byte that is part of a character is no delimiter."""
    vocabulary = ["</s>", "Ċ", "ĊĊ", "Ġ", "Ġ(", ".", "Ġa", "Ģ", "Ċa", "âĢĶ"]  # the last one is a dash
    backend = Tokenizer(models.BPE({token: i for i, token in enumerate(vocabulary)}, []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="</s>")
    found = {vocabulary[i] for i in delimiter_ids(tokenizer)}
    assert found == {"Ċ", "ĊĊ", "Ġ(", ".", "âĢĶ"}


def test_special_tokens_are_not_even_if_they_look_like_it() -> None:
    tokenizer = tiny_tokenizer()
    tokenizer.add_special_tokens({"additional_special_tokens": ["!"]})
    found = delimiter_ids(tokenizer)
    assert tokenizer.convert_tokens_to_ids("!") not in found
    assert not found & set(tokenizer.convert_tokens_to_ids(SPECIAL))
