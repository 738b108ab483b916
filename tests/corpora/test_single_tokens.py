"""Which pairs a tokenizer keeps, and what it says about those it drops."""

from itertools import pairwise

import pytest
from planted import tiny_tokenizer
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from headwise.corpora import LEAST_PAIRS, Relation, packaged_relations, single_token, token_of
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
    assert token_of(["river", "stone", "nowhere", "river stone"], tokenizer) == {
        "river": vocabulary["river"], "stone": vocabulary["stone"], "nowhere": None, "river stone": None,
    }  # fmt: skip


def test_a_tokenizer_that_puts_a_blank_in_front_of_every_text():
    tokenizer = sentencepiece()
    assert token_of(["hot", "cold", "warm"], tokenizer) == {
        "hot": tokenizer.get_vocab()["▁hot"], "cold": tokenizer.get_vocab()["▁cold"], "warm": None,
    }  # fmt: skip


def test_every_dropped_pair_has_a_reason():
    pairs = [("river", "stone"), ("river", "sea!"), ("x y", "stone"), ("x y", "sea!"), ("door", "light")]
    kept = single_token(relation(*pairs), tiny_tokenizer())
    ids = tiny_tokenizer().get_vocab()
    assert kept.pairs == (("river", "stone"), ("door", "light"))
    assert kept.sources == (ids["river"], ids["door"]) and kept.targets == (ids["stone"], ids["light"])
    reasons = ["target is several tokens", "source is several tokens", "both are several tokens"]
    assert kept.dropped == dict.fromkeys(reasons, 1)
    assert len(kept) + sum(kept.dropped.values()) == len(pairs)
    assert "2 of 5 pairs are single tokens" in kept.words and "30 are needed" in kept.words


def test_words_that_differ_by_lost_case_alone_say_nothing():
    kept = single_token(relation(("hot", "Hot"), ("hot", "cold"), ("Hot", "cold")), sentencepiece())
    assert kept.pairs == (("hot", "cold"),)
    assert kept.dropped == {"source and target are one token": 1, "another pair has the same tokens": 1}
    assert len(single_token(relation(("hot", "hot"), copying=True), sentencepiece())) == 1


def test_nothing_left():
    kept = single_token(relation(("1990", "1991")), tiny_tokenizer())
    assert (len(kept), kept.sources, kept.targets, kept.counts) == (0, (), (), False)


def test_thirty_pairs_count():
    words = [f"word{i}" for i in range(195, 230)]
    tokenizer = tiny_tokenizer(240)
    pairs = list(pairwise(words))
    assert single_token(relation(*pairs[:LEAST_PAIRS]), tokenizer).counts
    assert not single_token(relation(*pairs[: LEAST_PAIRS - 1]), tokenizer).counts


@pytest.mark.real
def test_the_default_tokenizer_keeps_all_relations_but_years():
    tokenizer = load().tokenizer
    kept = {item.name: single_token(item, tokenizer) for item in packaged_relations()}
    assert [name for name, one in kept.items() if not one.counts] == ["year-following"]
    assert kept["year-following"].dropped == {"both are several tokens": 230}
    assert sum(map(len, kept.values())) >= 3000
    for one in kept.values():
        for (source, target), s, t in zip(one.pairs, one.sources, one.targets, strict=True):
            assert tokenizer.decode([s]) == f" {source}" and tokenizer.decode([t]) == f" {target}"
