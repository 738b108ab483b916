"""A model in which one head maps countries to capitals and one suppresses antonyms, by construction.

A Llama of three layers and four heads. Embeddings are orthonormal rows, and so is the unembedding. All heads are random
and weak, but for two:

- L0H1 reads E: W_V sends the j-th country to the j-th unit vector, and W_O that unit vector to the j-th capital;
- L2H3 reads E' = MLP_0(ln2(E)), whose rows for the antonyms' sources are independent: W_V is their pseudo-inverse, so
  the j-th source becomes the j-th unit vector, and W_O sends it to minus the j-th target.

A third relation, of colours, is planted nowhere.

`planted_relation_heads` plants any heads: that map some of a relation's pairs, or that look like it and do not: "targets"
writes all targets for every source, "wrong" maps each source to the target of another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from tokenizers import Regex, Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from headwise.corpora import Relation, Relations
from headwise.model import Model, load
from headwise.seam import HeadWeights

PAIRS, VOCABULARY, HIDDEN, WIDTH, LAYERS, HEADS = 40, 480, 512, 128, 3, 4
CAPITAL, ANTONYM = (0, 1), (2, 3)
NAMES = {"country-capital": "knowledge", "antonym": "linguistic", "colour": "own"}


def planted_relations() -> Relations:
    """Made-up words; each pair (word s, word t) is two tokens of the tokenizer below."""
    items = [
        Relation(name, category, tuple((f"{name[:3]}s{i}", f"{name[:3]}t{i}") for i in range(PAIRS)))
        for name, category in NAMES.items()
    ]
    return Relations("planted relations", tuple(items))


def planted_tokenizer() -> PreTrainedTokenizerFast:
    words = [word for relation in planted_relations() for pair in relation.pairs for word in pair]
    tokens = ["<pad>", "<s>", "</s>", "<unk>", "the", *words]
    tokens += [f"filler{i}" for i in range(len(tokens), VOCABULARY)]
    backend = Tokenizer(models.WordLevel({token: i for i, token in enumerate(tokens)}, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Split(Regex(r"\w+"), behavior="removed", invert=True)
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token="<pad>", bos_token="<s>", eos_token="</s>", unk_token="<unk>"
    )


def ids(name: str, side: int) -> list[int]:
    """The token ids of a relation's sources (0) or targets (1)."""
    tokenizer = planted_tokenizer()
    return [int(tokenizer.convert_tokens_to_ids(pair[side])) for pair in planted_relations()[name].pairs]


@dataclass(frozen=True)
class RelationHead:
    """One head that reads the sources of a relation."""

    relation: str
    layer: int
    head: int
    sign: float = 1.0
    """-1: it suppresses the targets"""
    known: float = 1.0
    """share of the pairs that it maps; the others it maps as "wrong" does"""
    writes: str = "pairs"
    """or "targets" or "wrong": see above"""


def planted_relations_model(seed: int = 0) -> Model:
    """The model above."""
    return planted_relation_heads(
        [RelationHead("country-capital", *CAPITAL), RelationHead("antonym", *ANTONYM, sign=-1.0)], seed=seed
    )


def planted_relation_heads(heads: Sequence[RelationHead], *, seed: int = 0, noise: float = 0.0) -> Model:
    """The same model with other heads; ``noise``: standard deviation of all logits of a source, where its target has 1.

    The relation "copying" has the sources of country-capital as sources and targets.
    """
    config = LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=HIDDEN, intermediate_size=96, num_hidden_layers=LAYERS,
        num_attention_heads=HEADS, num_key_value_heads=HEADS, head_dim=WIDTH, max_position_embeddings=64,
        tie_word_embeddings=False, pad_token_id=0, bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        hf: Any = LlamaForCausalLM(config).eval()
        with torch.no_grad():
            for end in (hf.model.embed_tokens, hf.lm_head):
                end.weight.copy_(torch.linalg.qr(torch.randn(HIDDEN, HIDDEN))[0][:VOCABULARY])
    hf.config._name_or_path = "planted relations"
    model = load(hf, planted_tokenizer())
    weights = HeadWeights(model)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for one in heads:
            copies = one.relation == "copying"
            read = weights.embedding[ids("country-capital" if copies else one.relation, 0)]
            read = read if one.layer == 0 else weights.effective(read)
            target = hf.lm_head.weight[ids("country-capital" if copies else one.relation, 0 if copies else 1)]
            write = one.sign * _written(target, one)
            if noise:
                write = write + torch.randn(write.shape, generator=generator) * noise
            _plant(hf, (one.layer, one.head), read, write)
    return model


def _written(target: torch.Tensor, one: RelationHead) -> torch.Tensor:
    """(pair, hidden): what is written for each source."""
    if one.writes == "targets":
        return target.sum(0, keepdim=True).expand_as(target)  # each with logit 1
    wrong = target.roll(1, dims=0)
    known = torch.arange(len(target)) < round(one.known * len(target))
    return wrong if one.writes == "wrong" else torch.where(known[:, None], target, wrong)


def _plant(hf: Any, place: tuple[int, int], read: torch.Tensor, write: torch.Tensor) -> None:
    """A head that turns row j of ``read`` into row j of ``write``."""
    layer, head = place
    attention, columns = hf.model.layers[layer].self_attn, slice(head * WIDTH, head * WIDTH + PAIRS)
    attention.v_proj.weight[head * WIDTH : (head + 1) * WIDTH] = 0
    attention.v_proj.weight[columns] = torch.linalg.pinv(read.double()).T.float()  # (pair, hidden)
    attention.o_proj.weight[:, head * WIDTH : (head + 1) * WIDTH] = 0
    attention.o_proj.weight[:, columns] = write.T
