"""The study on models whose answer is known: a head that copies what followed is needed for repeated tokens, and no other."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from planted import CODE, HIDDEN, PLANTED, TOKEN, WIDTH, planted_profile_model, tiny_model, tiny_passages

from headwise.corpora import Passage, Passages, Question, Questions
from headwise.engines import Shard
from headwise.model import load
from headwise.model.gate import put_gate
from headwise.studies import build
from headwise.studies.causal.measure import prepare
from headwise.studies.causal.spec import CausalOptions
from headwise.studies.inputs import StudyInputs
from headwise.studies.present import describe, figure_of

SMALL = CausalOptions(prompts=8, tokens=16, ranking=4, shard=3, questions=4)
GOLD = ("garden", "letter winter", "stone")
QUESTIONS = Questions("mine", tuple(Question(f"q{i}", f"the old river {i} ?", (gold,)) for i, gold in enumerate(GOLD)))


@pytest.fixture(scope="module")
def copying():
    """The planted model, whose induction head now writes the token that it attends to, so that it is predicted."""
    model = planted_profile_model()
    layer, head = PLANTED["induction"]
    attention = model.hf.transformer.h[layer].attn
    own = slice(head * WIDTH, (head + 1) * WIDTH)
    with torch.no_grad():
        attention.c_attn.weight[:, 2 * HIDDEN + head * WIDTH : 2 * HIDDEN + (head + 1) * WIDTH] = 0
        attention.c_attn.weight[TOKEN, 2 * HIDDEN + head * WIDTH : 2 * HIDDEN + head * WIDTH + CODE] = torch.eye(CODE)
        attention.c_proj.weight[own] = 0
        attention.c_proj.weight[head * WIDTH : head * WIDTH + CODE, TOKEN] = 2 * torch.eye(CODE)
    return model


def repeated_texts(model, count: int = 16, period: int = 10) -> Passages:
    """Words that occur twice, in the same order."""
    generator = np.random.default_rng(0)
    words = [word for word in model.tokens(range(30, 180)) if word.isalpha() and word.islower()]
    lines = [" ".join([*(drawn := generator.choice(words, period, replace=False)), *drawn]) for _ in range(count)]
    return Passages("repeated", tuple(Passage(f"r{i}", text) for i, text in enumerate(lines)))


def test_the_copying_head_and_its_helper_are_needed_for_repeated_tokens(copying):
    options = CausalOptions(prompts=12, tokens=20, ranking=4, exact="all", shard=12, questions=0)
    run = prepare(copying, StudyInputs(repeated_texts(copying)), options)
    found = run.finalize([run.measure(Shard(0, 0, run.examples))])["causal"].sel(ablation="mean")
    repeated, other = (found.sel(token_class=name) for name in ("repeated", "other"))
    assert float(repeated["tokens"]) > 80
    effect = repeated["effect"].values
    pair = (PLANTED["induction"], PLANTED["previous"])
    for head in pair:
        assert repeated["effect_low"].values[head] > 0.2 and repeated["q"].values[head] < 0.01
        assert effect[head] > 3 * max(effect[cell] for cell in np.ndindex(effect.shape) if cell not in pair)
    assert repeated["effect"].values[PLANTED["induction"]] > other["effect"].values[PLANTED["induction"]]
    assert float(found["rank"].values[PLANTED["induction"]]) == 1


@pytest.fixture(scope="module")
def built(tiny, tmp_path_factory):
    folder = tmp_path_factory.mktemp("causal") / "atlas"
    return build(
        tiny, ["causal"], data=tiny_passages(12), questions=QUESTIONS, output=folder, options={"causal": SMALL}
    )


def test_a_build_has_columns_figure_and_words(built):
    columns = built.heads().columns
    assert {"causal.mean.all.effect", "causal.rank", "causal.excess", "causal.mean.kl"} <= set(columns)
    assert sorted(set(built["causal"]["rank"].values[0].tolist())) == [1, 2, 3, 4]
    assert figure_of("causal", built["causal"]).panels[-1].key == "agreement"
    assert "one at a time" in built.describe("causal").text()


def test_shards_and_batches_do_not_change_the_numbers(built, tiny):
    options = CausalOptions(prompts=8, tokens=16, ranking=4, shard=12, batch_tokens=40, questions=4)
    run = prepare(tiny, StudyInputs(tiny_passages(12), QUESTIONS), options)
    again = run.finalize([run.measure(Shard(0, 0, run.examples))])["causal"]
    assert again["checked"].values.tolist() == built["causal"]["checked"].values.tolist()
    for name in ("effect", "attribution", "kl", "excess", "effect_high"):
        np.testing.assert_allclose(again[name], built["causal"][name], rtol=1e-3, atol=2e-5)


@pytest.mark.parametrize("kind", ["bfloat16", "gated", "kv_group"])
def test_half_precision_gates_and_groups(kind):
    hf, tokenizer = tiny_model(layers=2)
    if kind == "gated":
        put_gate(hf, 0.5)
    model = load(hf.to(torch.bfloat16) if kind == "bfloat16" else hf, tokenizer)
    options = CausalOptions(
        prompts=6, tokens=12, ranking=2, questions=0, unit="kv_group" if kind == "kv_group" else "head"
    )
    run = prepare(model, StudyInputs(tiny_passages(8)), options)
    found = run.finalize([run.measure(Shard(0, 0, run.examples))])["causal"]
    one = found.sel(ablation="mean", token_class="all")
    assert np.isfinite(one["effect"].values).all() and np.abs(one["attribution"].values).max() > 0
    if kind == "kv_group":
        np.testing.assert_array_equal(one["effect"].values[:, ::2], one["effect"].values[:, 1::2])
    assert "share keys" in describe("causal", found).text() or kind != "kv_group"


def test_the_tokens_of_gold_answers_are_scored(tiny):
    run = prepare(tiny, StudyInputs(tiny_passages(12), QUESTIONS), replace(SMALL, questions=3, shard=20))
    assert run.examples == 11
    found = run.finalize([run.measure(Shard(0, 0, run.examples))])["causal"].sel(token_class="answer")
    assert float(found["tokens"]) == 4
    losses = []
    for item in QUESTIONS.items:
        begun = tiny.ids(f"Question: {item.question}\nAnswer:")
        ids = torch.tensor([tiny.ids(f"Question: {item.question}\nAnswer: {item.answers[0]}")])
        with torch.no_grad():
            logs = tiny.hf(ids).logits[0, :-1].log_softmax(-1).gather(-1, ids[0, 1:, None])[:, 0]
        losses += (-logs[len(begun) - 1 :]).tolist()
    assert float(found["loss"]) == pytest.approx(np.mean(losses), rel=1e-4)
