"""The study `answers`, on tiny random models; and on the default model with a dozen questions."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import xarray as xr
from planted import REGISTERS, tiny_model
from served import Stub

from headwise.core.errors import DataError, StudyError
from headwise.core.schema import check
from headwise.corpora import Endpoint, Question, Questions, packaged_questions, prompt_ids
from headwise.engines import Shard, ShardStore, run_shards, split_shards
from headwise.model import Model, load
from headwise.studies.answers import endings
from headwise.studies.answers.measure import prepare
from headwise.studies.answers.spec import AnsweringOptions
from headwise.studies.inputs import StudyInputs
from headwise.studies.registry import dataset_spec

WORDS = [word for words, _ in REGISTERS.values() for word in words.split()]
SMALL = AnsweringOptions(max_new_tokens=6, few_shot=1)


@pytest.fixture(scope="module")
def model() -> Model:
    return load(*tiny_model(layers=2))


def questions(count: int = 11, **fields: Any) -> Questions:
    items = []
    for index in range(count):
        text = " ".join(WORDS[(7 * index + 3 * word) % len(WORDS)] for word in range(3 + index % 5))
        items.append(Question(f"q{index}", text, (WORDS[index], WORDS[-1 - index]), f"t{index % 2}", 1 + index % 3))
    return Questions("made up", tuple(replace(item, **fields) for item in items))


def answers(model: Model, asked: Questions, options: AnsweringOptions = SMALL) -> xr.Dataset:
    work = prepare(model, StudyInputs(questions_source=asked), options)
    (dataset,) = work.finalize([work.measure(shard) for shard in split_shards(work.examples, work.shard_size)]).values()
    return dataset.assign_attrs(work.provenance.to_attrs())


def same(a: xr.Dataset, b: xr.Dataset) -> bool:
    exact = [name for name in a.variables if a[name].dtype.kind != "f"]
    near = [name for name in a.variables if a[name].dtype.kind == "f"]
    return all(a[name].equals(b[name]) for name in exact) and all(
        np.allclose(a[name], b[name], atol=1e-5, equal_nan=True) for name in near
    )


def ids(text: str) -> list[int]:
    return [int(number) for number in text.split()]


# ---- the Dataset ----------------------------------------------------------------------------------------------------


def test_the_dataset_is_as_promised(model: Model) -> None:
    asked = questions()
    found = answers(model, asked)
    check(found, dataset_spec("answers").schema)
    assert found.example.values.tolist() == [item.id for item in asked.items]
    assert found.question.values.tolist() == [item.question for item in asked.items]
    assert [json.loads(text) for text in found.golds.values] == [list(item.answers) for item in asked.items]
    assert found.gold.values.tolist() == [item.answers[0] for item in asked.items]
    assert found.topic.values.tolist() == [item.topic for item in asked.items]
    assert found.difficulty.values.tolist() == [item.difficulty for item in asked.items]
    assert set(found.label.values) <= {"correct", "wrong", "refused"}
    assert found.answer_tokens.values.tolist() == [len(ids(text)) for text in found.answer_ids.values]
    assert found.prompt_tokens.values.tolist() == [len(ids(text)) for text in found.prompt_ids.values]
    assert int(found.answer_tokens.max()) <= SMALL.max_new_tokens
    assert not bool(found.finished[found.answer_tokens == 6].any())
    assert found.attrs["record"] == "[]"


def test_the_prompts_are_those_of_the_corpus(model: Model) -> None:
    asked = questions()
    found = answers(model, asked)
    for text, item in zip(found.prompt_ids.values, asked.items, strict=True):
        assert tuple(ids(text)) == prompt_ids(model, item, few_shot=1)


def test_a_pass_over_prompt_and_answer_gives_the_same_log_probabilities(model: Model) -> None:
    found = answers(model, questions())
    for row in range(found.sizes["example"]):
        prompt, said = ids(str(found.prompt_ids.values[row])), ids(str(found.answer_ids.values[row]))
        logits = model(torch.tensor([prompt + said]), use_cache=False).logits[0, len(prompt) - 1 : -1].log_softmax(-1)
        scores = logits.gather(1, torch.tensor(said)[:, None])
        assert logits.argmax(-1).tolist() == said
        assert float(found.logprob_mean[row]) == pytest.approx(float(scores.mean()), abs=1e-5)
        assert float(found.logprob_min[row]) == pytest.approx(float(scores.min()), abs=1e-5)


@pytest.mark.parametrize("changes", [{"batch": 1}, {"batch": 3}, {"batch_tokens": 1}, {"shard": 1}, {"shard": 4}])
def test_batches_and_shards_change_nothing(model: Model, changes: dict[str, int]) -> None:
    assert same(answers(model, questions()), answers(model, questions(), replace(SMALL, **changes)))


def test_a_question_alone_gets_the_same_answer(model: Model) -> None:
    asked = questions()
    together = answers(model, asked)
    for index in (0, 4, 10):
        alone = answers(model, Questions("one", (asked.items[index],)))
        assert same(alone, together.isel(example=[index]))


def test_the_same_twice_and_other_seeds(model: Model) -> None:
    assert same(
        answers(model, questions()), answers(model, questions(), replace(SMALL, seed=3))
    )  # greedy has no chance
    hot = replace(SMALL, temperature=1.0)
    one, two, other = (answers(model, questions(), option) for option in (hot, hot, replace(hot, seed=3)))
    assert same(one, two)
    assert same(one, answers(model, questions(), replace(hot, batch=2, shard=3)))
    assert one.answer_ids.values.tolist() != other.answer_ids.values.tolist()


def test_provenance_names_what_matters(model: Model) -> None:
    first = prepare(model, StudyInputs(questions_source=questions()), SMALL).provenance
    assert first.data == {"name": "made up", "size": 11, "given": 11, "digest": questions().digest}
    assert (first.parameters["chat"], first.parameters["few_shot"]) == (False, 1)
    assert first.key() == prepare(model, StudyInputs(questions_source=questions()), SMALL).provenance.key()
    for options in (replace(SMALL, temperature=0.5), replace(SMALL, few_shot=2), replace(SMALL, seed=1)):
        assert prepare(model, StudyInputs(questions_source=questions()), options).provenance.key() != first.key()


def test_an_interrupted_run_goes_on(model: Model, tmp_path: Path) -> None:
    options = replace(SMALL, shard=3)
    undisturbed = answers(model, questions(), options)
    work = prepare(model, StudyInputs(questions_source=questions()), options)
    shards = split_shards(work.examples, work.shard_size)

    def store() -> ShardStore:
        return ShardStore(tmp_path, work.provenance, examples=work.examples, size=work.shard_size)

    def interrupted(shard: Shard) -> xr.Dataset:
        if shard.index == 2:
            raise KeyboardInterrupt
        return work.measure(shard)

    with pytest.raises(KeyboardInterrupt):
        run_shards(interrupted, shards, store())
    measured: list[int] = []

    def counted(shard: Shard) -> xr.Dataset:
        measured.append(shard.index)
        return work.measure(shard)

    resumed = work.finalize(run_shards(counted, shards, store()))["answers"]
    assert measured == [2, 3]
    assert same(resumed.drop_attrs(), undisturbed.drop_attrs())


# ---- where an answer ends -------------------------------------------------------------------------------------------


def said(model: Model, text: str) -> tuple[int, ...]:
    return tuple(model.tokenizer(text, add_special_tokens=False)["input_ids"])  # type: ignore[misc]


@pytest.mark.parametrize(
    ("before", "token", "ends"),
    [
        ("the river", "</s>", True),
        ("", "</s>", True),
        ("the river", "<s>", True),
        ("the river", "\n", True),
        ("", "\n", False),  # a line end before the first word
        ("the river", "was", False),
        ("the river .", "old", False),  # the tokenizer knows small letters only
    ],
)
def test_what_ends_an_answer(model: Model, before: str, token: str, ends: bool) -> None:
    (last,) = said(model, token)
    assert endings.ending(model, numeric=False)(said(model, before), last) is ends


def test_word_problems_may_take_several_lines(model: Model) -> None:
    ending = endings.ending(model, numeric=True)
    (line,) = said(model, "\n")
    assert not ending(said(model, "x = 2"), line)
    assert not ending(said(model, "x = 2 \n"), line)
    assert not ending(said(model, "x = 2 ."), said(model, "y")[0])


@pytest.mark.parametrize(
    ("before", "after", "ends"),
    [
        ("First, add.", "First, add.\n", False),
        ("6 x 2 = 12. The answer is 12.", "6 x 2 = 12. The answer is 12.\n", True),
        ("12\n\n", "12\n\nQuestion", True),
        ("A good", "A good Question", False),
    ],
)
def test_word_problems_end_with_the_answer(model: Model, before: str, after: str, ends: bool) -> None:
    letters = _Letters()
    lettered = replace(model, tokenizer=letters)
    token = letters.ids(after)[-1] if not after.endswith("Question") else letters.whole("Question")
    assert endings.ending(lettered, numeric=True)(tuple(letters.ids(before)), token) is ends


class _Letters:
    """A tokenizer of single letters, and of whole words on request."""

    all_special_ids = (0,)

    def __init__(self) -> None:
        self._texts: dict[int, str] = {}

    def ids(self, text: str) -> list[int]:
        return [self.whole(letter) for letter in text]

    def whole(self, text: str) -> int:
        number = sum(ord(letter) * 257**place for place, letter in enumerate(text)) + 1
        self._texts[number] = text
        return number

    def decode(self, ids: list[int], **_: object) -> str:
        return "".join(self._texts[number] for number in ids)


@pytest.mark.parametrize(
    ("before", "after", "second"),
    [
        ("It is Paris.", "It is Paris. The", True),
        ("It is 44.", "It is 44. 4", True),
        ("It is 44.", "It is 44.5", False),
        ("It is J.", "It is J. K", False),
        ("1.", "1. Paris", False),
        ("It is St.", "It is St. Petersburg", False),
        ("Sure!", "Sure! The", False),
        ("Paris", "Paris is", False),
    ],
)
def test_a_second_sentence(before: str, after: str, second: bool) -> None:
    assert endings.is_second_sentence(before, after) is second


def test_word_problems_get_more_tokens(model: Model) -> None:
    options = replace(SMALL, max_new_tokens=2, reasoning_tokens=9)
    mixed = Questions(
        "mixed", (*questions(3, numeric=True).items, *(replace(q, id=q.id + "x") for q in questions(3).items))
    )
    found = answers(model, mixed, options)
    assert int(found.answer_tokens[:3].max()) > 2
    assert int(found.answer_tokens[3:].max()) <= 2


# ---- answers that are there already ---------------------------------------------------------------------------------


def with_responses(*responses: str | None, **fields: Any) -> Questions:
    items = questions(len(responses), **fields).items
    return Questions("given", tuple(replace(item, response=text) for item, text in zip(items, responses, strict=True)))


def test_given_answers_are_read_and_judged(model: Model) -> None:
    golds = [item.answers for item in questions(4).items]
    found = answers(model, with_responses(golds[0][0], golds[1][1], "winter stone road", ""))
    assert found.label.values.tolist() == ["correct", "correct", "wrong", "refused"]
    assert found.rule.values.tolist() == ["exact", "exact", "no match", "empty"]
    assert found.answer.values.tolist() == [golds[0][0], golds[1][1], "winter stone road", ""]
    assert found.answer_tokens.values.tolist() == [1, 1, 3, 0]
    assert bool(found.finished.all())
    assert found.logprob_mean.isnull().values.tolist() == [False, False, False, True]


def test_given_and_generated_answers_have_the_same_log_probabilities(model: Model) -> None:
    """The model's own words, given back to it, are the tokens it said."""
    generated = answers(model, questions())
    given = answers(model, with_responses(*generated.answer.values.tolist()))
    alike = generated.answer_ids.values == given.answer_ids.values
    assert alike.sum() >= 8  # a word that the vocabulary lacks, or a line end at the front, is lost in the text
    np.testing.assert_allclose(generated.logprob_mean[alike], given.logprob_mean[alike], atol=1e-5)


def test_the_users_labels_are_kept(model: Model) -> None:
    given = with_responses("the", "a", "", label="correct")
    found = answers(model, given)
    assert found.label.values.tolist() == ["correct", "correct", "refused"]
    assert found.rule.values.tolist() == ["given", "given", "empty"]


def test_what_would_have_ended_an_answer_is_not_part_of_it(model: Model) -> None:
    found = answers(model, with_responses("the river </s> again"))
    assert found.answer_ids.values.tolist() == [" ".join(map(str, said(model, "the river")))]


def test_a_word_the_tokenizer_does_not_know_is_part_of_an_answer(model: Model) -> None:
    assert answers(model, with_responses("the Zambezi river")).answer_tokens.values.tolist() == [3]


def test_some_responses_are_refused(model: Model) -> None:
    with pytest.raises(DataError, match=r"1 of 2 rows of given have no response \(the first is 'q1'\)"):
        prepare(model, StudyInputs(questions_source=with_responses("the", None)), SMALL)


def test_no_questions_are_refused(model: Model) -> None:
    with pytest.raises(DataError, match="made up holds no questions"):
        prepare(model, StudyInputs(questions_source=Questions("made up", ())), SMALL)


def test_an_answer_longer_than_the_context_is_refused_or_left_out(model: Model) -> None:
    given = with_responses("the river", "the " * 400, "a " * 500)
    with pytest.raises(
        DataError, match=r"question 'q1' \(and 1 more\) does not fit.*its answer of 400 tokens .*the 320 tok"
    ):
        prepare(model, StudyInputs(questions_source=given), SMALL)
    found = answers(model, given, replace(SMALL, too_long="drop"))
    assert found.example.values.tolist() == ["q0"]
    assert json.loads(found.attrs["dropped"]) == ["q1", "q2"]


def test_a_prompt_longer_than_the_context_is_refused(model: Model) -> None:
    with pytest.raises(
        DataError, match=r"question 'q0' does not fit: its prompt of 320 tokens or more and 6 tokens of ans"
    ):
        prepare(model, StudyInputs(questions_source=questions(1, context="the old river " * 200)), SMALL)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"max_new_tokens": 0}, "max_new_tokens must be at least 1, not 0"),
        ({"temperature": -1.0}, "temperature must be at least 0, not -1.0"),
        ({"too_long": "cut"}, "too_long cannot be 'cut'"),
    ],
)
def test_options_that_make_no_sense(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(StudyError, match=message):
        replace(SMALL, **changes)


# ---- endpoints ------------------------------------------------------------------------------------------------------


def test_answers_from_an_endpoint(model: Model) -> None:
    with Stub(lambda body: "the river of " + body["messages"][0]["content"].split()[-2]) as stub:
        options = replace(SMALL, endpoint=Endpoint(stub.url, "served"))
        found = answers(model, questions(5), options)
        parameters = prepare(model, StudyInputs(questions_source=questions(5)), options).provenance.parameters
    expected = [f"the river of {item.question.split()[-1]}" for item in questions(5).items]
    assert found.answer.values.tolist() == expected
    assert bool(found.logprob_mean.notnull().all())
    assert len(stub.bodies) == 5
    assert stub.bodies[0]["max_tokens"] == 6
    assert parameters["endpoint"] == f"served at {stub.url}"


def test_labels_from_a_judge(model: Model) -> None:
    with Stub(lambda body: "correct") as stub:
        found = answers(model, with_responses("winter", "stone", ""), replace(SMALL, judge=Endpoint(stub.url, "judge")))
    assert found.label.values.tolist() == ["correct", "correct", "refused"]
    assert found.rule.values.tolist() == ["judge", "judge", "empty"]


# ---- the default model ----------------------------------------------------------------------------------------------


@pytest.mark.real
def test_the_default_model_answers() -> None:
    model = load()
    easy = [
        item for item in packaged_questions().items if item.topic in ("capitals", "languages") and item.difficulty == 1
    ]
    asked = Questions("a dozen", tuple(easy[:6] + easy[-6:]))
    found = answers(model, asked, AnsweringOptions())
    assert int((found.label == "correct").sum()) >= 5
    assert float(found.answer_tokens.mean()) < 20
    prompt = model.tokenizer.decode(ids(str(found.prompt_ids.values[0])))  # type: ignore[union-attr]
    assert prompt.count("<|im_start|>system") == 1
    assert prompt.endswith("<|im_start|>assistant\n")
    assert same(found, answers(model, asked, AnsweringOptions(batch=5, shard=7)))
    given = Questions("given", tuple(
        replace(item, response=str(text)) for item, text in zip(asked.items, found.answer.values, strict=True)
    ))  # fmt: skip
    read = answers(model, given, AnsweringOptions())
    assert read.label.values.tolist() == found.label.values.tolist()
    np.testing.assert_allclose(read.logprob_mean, found.logprob_mean, atol=1e-4)
