"""Delimiters of a vocabulary; the single-token pairs of a relation, and the reasons for dropped ones."""

from itertools import pairwise

import pytest
from planted import SPECIAL, tiny_tokenizer
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from headwise.corpora import (
    MIN_PAIRS,
    Relation,
    delimiter_ids,
    packaged_relations,
    single_token_ids,
    single_token_pairs,
)
from headwise.corpora.sequences import is_delimiter
from headwise.model import load


def relation(*pairs: tuple[str, str], copying: bool = False) -> Relation:
    return Relation("r", "own", pairs, copying)


def sentencepiece() -> PreTrainedTokenizerFast:
    """One that spells blanks ▁ and puts one before every text, as Llama 2's does; lower case only."""
    pieces = {piece: i for i, piece in enumerate(["<unk>", "▁", "▁the", "▁hot", "▁cold", "▁col", "d", "▁the▁hot"])}
    backend = Tokenizer(models.Unigram([(piece, -float(len(piece) < 4)) for piece in pieces], unk_id=0))
    backend.normalizer = normalizers.Lowercase()
    backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    backend.decoder = decoders.Metaspace(prepend_scheme="always")
    return PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="<unk>")


def test_a_word_is_the_token_it_has_inside_a_sentence():
    tokenizer = tiny_tokenizer()
    vocabulary = tokenizer.get_vocab()
    assert single_token_ids(["river", "stone", "nowhere", "river stone"], tokenizer) == {
        "river": vocabulary["river"], "stone": vocabulary["stone"], "nowhere": None, "river stone": None,
    }  # fmt: skip


def test_a_tokenizer_that_puts_a_blank_in_front_of_every_text():
    tokenizer = sentencepiece()
    assert single_token_ids(["hot", "cold", "warm"], tokenizer) == {
        "hot": tokenizer.get_vocab()["▁hot"], "cold": tokenizer.get_vocab()["▁cold"], "warm": None,
    }  # fmt: skip


def test_every_dropped_pair_has_a_reason():
    pairs = [("river", "stone"), ("river", "sea!"), ("x y", "stone"), ("x y", "sea!"), ("door", "light")]
    kept = single_token_pairs(relation(*pairs), tiny_tokenizer())
    ids = tiny_tokenizer().get_vocab()
    assert kept.pairs == (("river", "stone"), ("door", "light"))
    assert kept.sources == (ids["river"], ids["door"]) and kept.targets == (ids["stone"], ids["light"])
    reasons = ["target is several tokens", "source is several tokens", "both are several tokens"]
    assert kept.dropped == dict.fromkeys(reasons, 1)
    assert len(kept) + sum(kept.dropped.values()) == len(pairs)
    assert "2 of 5 pairs are single tokens" in kept.words and "30 are needed" in kept.words


def test_words_that_differ_by_lost_case_alone_say_nothing():
    kept = single_token_pairs(relation(("hot", "Hot"), ("hot", "cold"), ("Hot", "cold")), sentencepiece())
    assert kept.pairs == (("hot", "cold"),)
    assert kept.dropped == {"source and target are one token": 1, "another pair has the same tokens": 1}
    assert len(single_token_pairs(relation(("hot", "hot"), copying=True), sentencepiece())) == 1


def test_nothing_left():
    kept = single_token_pairs(relation(("1990", "1991")), tiny_tokenizer())
    assert (len(kept), kept.sources, kept.targets, kept.counts) == (0, (), (), False)


def test_thirty_pairs_count():
    words = [f"word{i}" for i in range(195, 230)]
    tokenizer = tiny_tokenizer(240)
    pairs = list(pairwise(words))
    assert single_token_pairs(relation(*pairs[:MIN_PAIRS]), tokenizer).counts
    assert not single_token_pairs(relation(*pairs[: MIN_PAIRS - 1]), tokenizer).counts


@pytest.mark.real
def test_the_default_tokenizer_keeps_all_relations_but_years():
    tokenizer = load().tokenizer
    kept = {item.name: single_token_pairs(item, tokenizer) for item in packaged_relations()}
    assert [name for name, one in kept.items() if not one.counts] == ["year-following"]
    assert kept["year-following"].dropped == {"both are several tokens": 230}
    assert sum(map(len, kept.values())) >= 3000
    for one in kept.values():
        for (source, target), s, t in zip(one.pairs, one.sources, one.targets, strict=True):
            assert tokenizer.decode([s]) == f" {source}" and tokenizer.decode([t]) == f" {target}"


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
