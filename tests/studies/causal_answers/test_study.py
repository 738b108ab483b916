"""The study on models whose answer is known: one head alone tells the errors, or writes the next token."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
import torch
from planted import tiny_model, tiny_passages

from headwise.core.errors import DataError
from headwise.core.schema import check
from headwise.corpora import Question, Questions
from headwise.engines import Shard
from headwise.model import load
from headwise.seam import Intervention, observe
from headwise.studies import build
from headwise.studies.answers.endings import text_of
from headwise.studies.causal.spec import CausalOptions
from headwise.studies.causal_answers.finalize import Ablated
from headwise.studies.causal_answers.measure import AblatedAnswering, AblatedReader, prepare
from headwise.studies.causal_answers.spec import CausalAnswersOptions
from headwise.studies.inputs import StudyInputs
from headwise.studies.present import describe, figure_of
from headwise.studies.registry import dataset_spec

TELLING = (0, 3)
FEW = CausalOptions(prompts=6, tokens=12, ranking=2, questions=0, exact="all")
WORDS = sorted({word for text in tiny_passages(6).items for word in text.text.split() if word.isalpha()})
NOUNS = [
    word for word in "river garden stone rain winter paper knife letter sand year list map".split() if word in WORDS
]
MARK, END, *OTHERS = NOUNS


def only_one_head_sees_other_tokens():
    """Every other head attends to all tokens alike and writes nothing."""
    hf, tokenizer = tiny_model(layers=3)
    with torch.no_grad():
        for index, layer in enumerate(hf.model.layers):
            attention, width = layer.self_attn, 16
            own = slice(TELLING[1] * width, (TELLING[1] + 1) * width)
            keep = index == TELLING[0]
            query, out = attention.q_proj.weight.clone(), attention.o_proj.weight.clone()
            attention.q_proj.weight.zero_()
            attention.o_proj.weight.zero_()
            if keep:
                attention.q_proj.weight[own] = 10 * query[own]
                attention.o_proj.weight[:, own] = 4 * out[:, own]
    return load(hf, tokenizer)


def given_answers(count: int = 120) -> Questions:
    """Wrong answers say one word several times, at the same places as correct ones say any; all end alike."""
    rng = random.Random(0)
    items = []
    for index in range(count):
        wrong, topic = index % 2 == 0, f"topic {index % 8 // 2}"
        said = [MARK if wrong and place % 4 else rng.choice(OTHERS) for place in range(8)]
        asked = " ".join(rng.choice(OTHERS) for _ in range(6))
        text = " ".join([*said, END])
        label = "wrong" if wrong else "correct"
        items.append(Question(f"q{index}", asked, ("gold",), topic=topic, response=text, label=label))
    return Questions("given", tuple(items))


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    model = only_one_head_sees_other_tokens()
    options = {
        "causal": FEW,
        "causal_answers": CausalAnswersOptions(heads=2, controls=1, answers=100, shard=3),
    }
    return build(
        model, ["causal_answers"], data=tiny_passages(12), questions=given_answers(),
        output=tmp_path_factory.mktemp("answers") / "atlas", options=options,
    )  # fmt: skip


def test_only_the_head_that_tells_the_errors_is_needed_by_the_detectors(built):
    found = built["causal_answers"]
    check(found, dataset_spec("causal_answers").schema)
    assert found["role"].values[TELLING] in ("detector", "both")
    for name in ("detector", "detector_reading", "detector_refitted", "probe", "probe_refitted"):
        one = found.sel(measure=name)
        assert float(one["intact"]) > 0.75, name
        assert float(one["intact"]) + one["change"].values[TELLING] == pytest.approx(0.5, abs=0.05), name
        assert one["excess_high"].values[TELLING] < -0.1 and one["excess_q"].values[TELLING] < 0.01
        others = np.isfinite(one["change"].values)
        others[TELLING] = False
        assert others.any() and np.abs(one["change"].values[others]).max() < 0.01, name
    assert float(found["set_change"].sel(measure="detector", head_set="detector")) < -0.3


def test_given_answers_are_not_asked_again_and_the_words_say_so(built):
    found = built["causal_answers"]
    assert found["n"].values.tolist()[:2] == [0, 0] and found["intact"].isel(measure=0).isnull()
    assert "given, not made by this model" in built.describe("causal_answers").text()
    keys = [panel.key for panel in figure_of("causal_answers", found).panels]
    assert keys == ["detector", "detector_reading", "detector_refitted", "probe", "probe_refitted"]


ASKED = Questions(
    "asked", tuple(Question(f"q{i}", f"the {word} river ?", ("old",)) for i, word in enumerate(WORDS[:60]))
)


@pytest.fixture(scope="module")
def answered(tmp_path_factory):
    """A random model, asked; half of its answers are called wrong, so that the other studies can be measured."""
    model = load(*tiny_model(layers=2))
    folder = tmp_path_factory.mktemp("asked") / "atlas"
    atlas = build(
        model, ["answers", "causal"], data=tiny_passages(12), questions=ASKED, output=folder, options={"causal": FEW}
    )
    return model, atlas


def reader_and_answering(answered, options):
    model, atlas = answered
    answers = atlas["answers"]
    reader = AblatedReader(model, answers, np.arange(20), "residual", 1, options)
    items = list(ASKED.items[:12])
    return reader, AblatedAnswering(model, answers, items, atlas.provenance("answers"), reader, options)


@pytest.mark.parametrize("where", ["answer", "everywhere"])
def test_answers_are_those_of_a_model_without_the_head(answered, where):
    model, atlas = answered
    reader, answering = reader_and_answering(answered, CausalAnswersOptions(where=where, batch=16))
    heads = ((0, 1), (1, 3))
    trials = [(index, answering._change(some)) for some in ((), heads) for index in range(12)]
    texts = answering.prompter.texts(answering.prompts, trials, "answers")
    stored = atlas["answers"].sel(example=[item.id for item in answering.asked])["answer"].values.tolist()
    assert texts[:12] == stored
    assert texts[12:] != stored
    for prompt, text in list(zip(answering.prompts, texts[12:], strict=True))[:4]:
        assert text == _slowly(model, reader, answering, prompt, heads, 0 if where == "everywhere" else len(prompt) - 1)


def _slowly(model, reader, answering, prompt, heads, begin):
    """Greedy, the whole text at every step, z of these heads replaced from a position on."""
    said: tuple[int, ...] = ()
    while len(said) < answering.limit:
        ids = torch.tensor([prompt + said])
        with torch.no_grad(), observe(model, _FromPositionOn(reader, heads, begin)):
            token = int(model.hf(ids).logits[0, -1].argmax())
        if answering.prompter.ends(said, token):
            break
        said = (*said, token)
    return text_of(model, said)


class _FromPositionOn(Intervention):
    def __init__(self, reader, heads, begin):
        self.reader, self.heads, self.begin = reader, heads, begin

    def change(self, call):
        z = call.z.clone()
        for layer, head in self.heads:
            if layer == call.layer:
                z[:, self.begin :, head] = self.reader.ablations.means[layer][1, head].to(z.dtype)
        return z


def test_passes_that_begin_in_the_middle_read_what_whole_ones_read(answered, monkeypatch):
    some = [Ablated((), "intact"), Ablated(((1, 2),), "needed"), Ablated(((0, 1), (1, 0)), "detector")]
    options = CausalAnswersOptions(batch_tokens=200)
    found = reader_and_answering(answered, options)[0].read(some)
    whole = reader_and_answering(answered, replace(options, batch_tokens=4096))[0]
    whole.ablations.resumes = False
    for one, other in zip(found, whole.read(some), strict=True):
        np.testing.assert_allclose(one, other, atol=2e-5)
    assert np.abs(found[0][1] - found[0][0])[:, 0].max() == 0  # layer 0 is before the ablated head
    assert np.abs(found[1][1] - found[1][0]).max() > 1e-3


def test_too_few_answers_are_refused_with_the_remedy(built):
    maps = {name: built[name] for name in ("answers", "causal", "spectral", "probing")}
    few = maps["spectral"].isel(example=slice(0, 30))
    with pytest.raises(DataError, match="--limit"):
        prepare(only_one_head_sees_other_tokens(), StudyInputs(maps={**maps, "spectral": few}))


def test_shards_do_not_change_the_numbers(built):
    maps = {name: built[name] for name in ("answers", "causal", "spectral", "probing")}
    options = CausalAnswersOptions(heads=2, controls=1, answers=100, shard=50)
    inputs = StudyInputs(questions_source=given_answers(), maps=maps)
    run = prepare(only_one_head_sees_other_tokens(), inputs, options)
    again = run.finalize([run.measure(Shard(0, 0, run.examples))])["causal_answers"]
    np.testing.assert_allclose(again["change"], built["causal_answers"]["change"], atol=1e-6)
    assert describe("causal_answers", again).short()
