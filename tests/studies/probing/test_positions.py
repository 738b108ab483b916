"""The fifteen tokens against a plain loop over what the sheet says."""

import random

import numpy as np
import pytest

from headwise.studies.probing.positions import EXACT, POSITIONS, positions_of


def plainly(prompt: int, answer: int, first: int, last: int) -> dict[str, int]:
    tokens = list(range(prompt + answer))
    found = {
        "last_q": tokens[prompt - 1],
        "first_answer": tokens[prompt],
        "second_answer": tokens[prompt + 1] if answer > 1 else tokens[-1],
        "exact_answer_before_first": tokens[prompt + first - 1],
        "exact_answer_first": tokens[prompt + first],
        "exact_answer_last": tokens[prompt + last],
        "exact_answer_after_last": tokens[min(prompt + last + 1, len(tokens) - 1)],
    }
    return found | {str(-k): tokens[-k] for k in range(1, 9)}


def test_against_a_plain_loop():
    rng = random.Random(0)
    prompts, answers, spans = [], [], []
    for _ in range(60):
        prompts.append(rng.randint(8, 20))
        answers.append(rng.randint(1, 14))
        first = rng.randrange(answers[-1])
        spans.append((first, rng.randrange(first, answers[-1])))
    found = positions_of(prompts, answers, spans)
    for row, (prompt, answer, span) in enumerate(zip(prompts, answers, spans, strict=True)):
        assert dict(zip(POSITIONS, found.index[row].tolist(), strict=True)) == plainly(prompt, answer, *span)
    for place, name in enumerate(POSITIONS):
        short = sum(int(name) + answer < 0 for answer in answers) if name.startswith("-") else 0
        assert found.in_prompt[place] == short
    ends = sum(span[1] == answer - 1 for answer, span in zip(answers, spans, strict=True))
    assert found.moved[POSITIONS.index("exact_answer_after_last")] == ends
    assert found.moved[POSITIONS.index("second_answer")] == answers.count(1)


def test_fifteen_in_the_sheets_order():
    assert len(POSITIONS) == 15
    assert POSITIONS[0] == "last_q" and POSITIONS[3:7] == EXACT and POSITIONS[-1] == "-1"


@pytest.mark.parametrize("prompt", [2, 3])
def test_a_text_of_few_tokens_has_no_token_before_its_first(prompt):
    found = positions_of([prompt], [1], [(0, 0)])
    assert found.index.min() == 0
    assert np.all(found.index <= prompt)
    assert found.moved[POSITIONS.index("-8")] == 1
