"""The packaged steps are sound and balanced; samples are even; the prompt shows what it should."""

import json
import subprocess
import sys
from collections import Counter, defaultdict
from dataclasses import replace
from pathlib import Path

import pytest

from headwise.core.errors import DataError
from headwise.corpora import FUNCTIONS, HIGH_ORDER, LOW_ORDER, Step, Steps, answers_step, packaged_steps, step_prompt

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def packaged():
    return packaged_steps()


def a_step(number=1, function="Inference", split="train", chain="c", **fields):
    own = {"id": f"{chain}-{number}-{function}", "chain": chain, "question": "Q?", "earlier": (), "subquestion": "S?"}
    own |= {"answer": "yes", "answers": ("yes",), "function": function, "split": split, "number": number}
    return Step(**own | fields)


# ---- the packaged set -----------------------------------------------------------------------------------------------


def test_there_are_as_many_as_promised_of_every_function_in_both_splits(packaged):
    assert packaged.functions == FUNCTIONS == LOW_ORDER + HIGH_ORDER
    counts = Counter((item.function, item.split) for item in packaged)
    assert len(packaged) >= 900
    for function in FUNCTIONS:
        train, held = counts[function, "train"], counts[function, "held-out"]
        assert train + held >= 100
        assert 0.35 <= held / (train + held) <= 0.45
    assert max(map(len, map(packaged.of, FUNCTIONS))) == min(map(len, map(packaged.of, FUNCTIONS)))


def test_ids_are_unique_and_no_question_stands_in_both_splits(packaged):
    assert len({item.id for item in packaged}) == len(packaged)
    splits = defaultdict(set)
    for item in packaged:
        splits[item.chain].add(item.split)
        splits[item.question].add(item.split)
    assert all(len(found) == 1 for found in splits.values())


def test_nothing_is_asked_twice_about_one_scene(packaged):
    asked = Counter((item.question, item.subquestion) for item in packaged)
    assert [text for text, count in asked.items() if count > 1] == []
    assert len({item.question for item in packaged}) == len(packaged.chains())


def test_chains_have_two_or_four_steps_that_show_what_came_before(packaged):
    chains = packaged.chains()
    assert {len(steps) for steps in chains.values()} == {2, 4}
    for steps in chains.values():
        assert [step.number for step in steps] == list(range(1, len(steps) + 1))
        assert len({step.question for step in steps}) == 1
        assert steps[0].question.endswith(steps[-1].subquestion)
        assert steps[0].function in LOW_ORDER
        assert steps[-1].function in HIGH_ORDER
        for step in steps:
            assert step.earlier == tuple((one.subquestion, one.answer) for one in steps[: step.number - 1])


def test_every_pair_of_a_low_and_a_high_function_is_linked_equally_often(packaged):
    """The first low step belongs to the first high step of its chain, the second to the second."""
    pairs = Counter()
    for steps in packaged.chains().values():
        lows = [step.function for step in steps if step.function in LOW_ORDER]
        highs = [step.function for step in steps if step.function in HIGH_ORDER]
        pairs.update(zip(lows, highs, strict=True))
    assert len(pairs) == 16
    assert len(set(pairs.values())) == 1


def test_every_step_is_an_open_sentence(packaged):
    assert all(item.subquestion.endswith(" ...") for item in packaged)
    assert not [item for item in packaged if "{" in item.question + item.subquestion + item.answer]


def test_no_fact_of_a_table_stands_in_both_splits(packaged):
    facts = defaultdict(set)
    for item in packaged:
        if item.function == "Knowledge Recall":
            facts[item.subquestion].add(item.split)
    assert len(facts) > 50
    assert all(len(splits) == 1 for splits in facts.values())


def test_answers_are_short_and_right_by_the_rules_of_scoring(packaged):
    for item in packaged:
        assert item.answer == item.answers[0]
        assert 1 <= len(item.answer.split()) <= 6
        assert all(answers_step(item, answer) for answer in item.answers), item


def kind(item):
    if item.answer in ("yes", "no"):
        return "yes-no"
    if item.answer[0].isdigit():
        return "number"
    return "name" if item.answer[0].isupper() else "word"


def test_every_function_has_answers_of_several_kinds(packaged):
    for function in FUNCTIONS:
        kinds = Counter(kind(item) for item in packaged.of(function))
        assert set(kinds) == {"yes-no", "number", "name", "word"}, function
        assert max(kinds.values()) <= 0.75 * len(packaged.of(function)), function


def test_yes_and_no_are_in_balance(packaged):
    for function in FUNCTIONS:
        answers = Counter(item.answer for item in packaged.of(function))
        assert abs(answers["yes"] - answers["no"]) <= 4, function


def test_no_answer_is_the_answer_of_most_steps(packaged):
    for function in FUNCTIONS:
        [(_, count)] = Counter(item.answer for item in packaged.of(function)).most_common(1)
        assert count <= 0.2 * len(packaged.of(function)), function


def test_the_script_gives_the_file_byte_for_byte():
    run = subprocess.run(
        [sys.executable, ROOT / "scripts" / "make_steps.py", "--check"], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stdout.strip() == "as it should be"


def test_the_file_is_ours_to_read_with_the_reader_too(packaged):
    rows = [json.loads(line) for line in (ROOT / "src/headwise/corpora/data/steps.jsonl").read_text().splitlines()]
    assert [row["id"] for row in rows] == [item.id for item in packaged]


# ---- a set of steps -------------------------------------------------------------------------------------------------


def test_functions_come_in_the_stated_order_and_others_after_them():
    items = [a_step(1, "Wit"), a_step(2, "Inference"), a_step(3, "Retrieval"), a_step(4, "Charm")]
    assert Steps("s", tuple(items)).functions == ("Retrieval", "Inference", "Wit", "Charm")


def test_the_digest_changes_with_anything():
    one = a_step()
    others = [replace(one, **change) for change in (
        {"id": "x"}, {"question": "P?"}, {"earlier": (("a", "b"),)}, {"answers": ("yes", "y")}, {"split": "held-out"}
    )]  # fmt: skip
    assert len({Steps("s", (item,)).digest for item in [one, *others]}) == 6
    assert Steps("s", (one,)).digest == Steps("another name", (one,)).digest


def test_a_part_that_is_not_there_is_refused_with_a_guess(packaged):
    with pytest.raises(DataError, match="Did you mean 'Retrieval'"):
        packaged.of("Retrieve")
    with pytest.raises(DataError, match="'train' and 'held-out', not 'test'"):
        packaged.split("test")
    with pytest.raises(DataError, match="at least one step, not 0"):
        packaged.sample(0)


def test_samples_are_even_over_functions_keep_the_splits_and_are_nested(packaged):
    some, more = packaged.sample(80, seed=3), packaged.sample(240, seed=3)
    counts = Counter((item.function, item.split) for item in more)
    assert {counts[function, "train"] for function in FUNCTIONS} == {18}
    assert {counts[function, "held-out"] for function in FUNCTIONS} == {12}
    assert Counter(item.function for item in some) == dict.fromkeys(FUNCTIONS, 10)
    assert {item.split for item in packaged.sample(16)} == {"train", "held-out"}
    assert {item.id for item in some} <= {item.id for item in more}
    assert some == packaged.sample(80, seed=3) != packaged.sample(80, seed=4)
    assert packaged.sample(10**6) == packaged


# ---- scoring and the prompt -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answers", "said", "is_right"),
    [
        (("7",), "3 + 4 = 7", True),
        (("7",), "seven", True),
        (("7",), "The answer is 8, not 7.", False),
        (("seven",), "7", True),
        (("kite", "the kite"), "Ann should buy the kite.", True),
        (("kite",), "the kite or the doll", False),
        (("no",), "No, it is not.", True),
        (("no",), "Yes, no doubt about it", False),
        (("yes",), "", False),
        (("Ben",), "It was Ben who saw the dolls and then went home because it was late", True),
    ],
)
def test_scoring_follows_the_rules_of_matching(answers, said, is_right):
    assert answers_step(a_step(answer=answers[0], answers=answers), said) is is_right


def test_scoring_is_blind_to_the_function():
    said = ("12", "twelve of them", "no", "a dozen or so")
    for text in said:
        verdicts = {
            answers_step(a_step(function=function, answer="12", answers=("12",)), text) for function in FUNCTIONS
        }
        assert len(verdicts) == 1


def test_an_open_sentence_is_begun_in_the_turn_of_the_model(packaged):
    step = next(item for item in packaged if item.number == 4)
    user, own = step_prompt(step)
    assert (user["role"], own["role"]) == ("user", "assistant")
    assert user["content"].startswith(step.question)
    *earlier, last = own["content"].split("\n")
    assert earlier == [f"{asked.removesuffix(' ...')} {answer}." for asked, answer in step.earlier]
    assert last == step.subquestion.removesuffix(" ...")
    assert step.function not in user["content"] + own["content"]
    plain = step_prompt(step, chat=False)
    assert plain.startswith(step.question)
    assert plain.endswith(own["content"])


def test_the_answers_of_a_model_end_their_sentences_once():
    step = a_step(2, earlier=(("Ann has ...", "3 pens."),), subquestion="With one more, it is ...")
    assert step_prompt(step)[-1]["content"] == "Ann has 3 pens.\nWith one more, it is"


@pytest.mark.parametrize(
    ("said", "is_right"),
    [
        ("8 eggs, and Claire saw two", True),
        ("8 eggs; then", True),
        ("8, and 9", False),
        ("9 eggs, and Ann saw 8", False),
    ],
)
def test_the_end_of_an_open_sentence_is_what_is_said_up_to_the_next_clause(said, is_right):
    assert answers_step(a_step(subquestion="Oscar saw ...", answer="8 eggs", answers=("8 eggs", "8")), said) is is_right


def test_the_prompt_of_a_question_shows_the_earlier_answers_and_not_this_one():
    step = a_step(3, question="How many?", earlier=(("Ann?", "3"), ("Ben?", "4")), subquestion="3 plus 4?", answer="7")
    [turn] = step_prompt(step)
    assert turn["role"] == "user"
    assert turn["content"] == "How many?\n\nQ: Ann?\nA: 3\nQ: Ben?\nA: 4\nQ: 3 plus 4?\nAnswer briefly."
    plain = step_prompt(step, chat=False)
    assert plain.endswith(f"Q: {step.subquestion}\nA:")
