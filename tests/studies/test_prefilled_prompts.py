"""Prompts read once: the same answers and the same z as reading everything anew, with heads changed and without."""

import numpy as np
import pytest
import torch
from planted import tiny_model

from headwise.instruments import HeadOutputs
from headwise.interventions import PerExample, ScaleHeads
from headwise.model import load
from headwise.seam import observe
from headwise.studies.decoding import POSITIONS, PrefixCachedDecoder, common_prefix_length
from headwise.studies.functions.measure import step_batches

BEGINNING = tuple(range(20, 32))
HEADS = [(0, 1), (1, 2), (1, 0)]
PICK = [0, 0, 1, 2, 3, 3]
MASKED = (1, 3, 5)  # lines of PICK


def ends(so_far, token):
    return token == 2


@pytest.fixture(scope="module")
def model():
    return load(*tiny_model(layers=2))


@pytest.fixture(scope="module")
def prompts():
    rng = np.random.default_rng(0)
    return [BEGINNING + tuple(rng.integers(10, 150, count).tolist()) for count in (5, 9, 14, 7)]


def plainly(model, prompt, limit, where, masked):
    """One prompt, one token at a time, everything read anew each time."""
    ids, said = list(prompt), []
    while len(said) < limit:
        first = {"answer": len(prompt) - 1, "decode": len(prompt), "everywhere": 0}[where]
        places = list(range(first, len(ids)))
        with torch.no_grad():
            if masked and places:
                with observe(model, ScaleHeads(HEADS, 0.0, places)):
                    logits = model.hf(torch.tensor([ids]), use_cache=False).logits
            else:
                logits = model.hf(torch.tensor([ids]), use_cache=False).logits
        token = int(logits[0, -1].argmax())
        if ends((), token):
            break
        said.append(token)
        ids.append(token)
    return tuple(said)


@pytest.mark.parametrize("where", POSITIONS)
def test_answers_with_heads_masked_row_by_row_are_those_of_reading_anew(model, prompts, where):
    decoder = PrefixCachedDecoder(model, BEGINNING, longest=60, where=where)
    if where != "everywhere":
        starts = [prompt[: 3 + 2 * line] for line, prompt in enumerate(prompts)]
        decoder.prefill(starts)
        decoder.prepare(prompts, starts)
    factor = torch.ones(len(PICK), 2, 4)
    for line in MASKED:
        for layer, head in HEADS:
            factor[line, layer, head] = 0
    with observe(model, PerExample(factor, rows=decoder.row_of_batch)):
        found = decoder.answer(prompts, 6, ends, PICK)
    expected = [plainly(model, prompts[row], 6, where, line in MASKED) for line, row in enumerate(PICK)]
    assert [reply.ids for reply in found] == expected
    assert expected[0] != expected[1] or where == "decode"  # masking these heads does something
    assert [reply.ids for reply in decoder.answer(prompts, 6, ends)] == [
        plainly(model, prompt, 6, where, False) for prompt in prompts
    ]


def test_z_after_kept_prompts_is_that_of_one_whole_pass(model, prompts):
    decoder = PrefixCachedDecoder(model, BEGINNING, longest=60)
    starts = [prompt[:5] for prompt in prompts]
    decoder.prefill(starts)
    decoder.prepare(prompts, starts)
    answers = [(5, 6, 7), (9,), (), (11, 12, 13, 14)]
    with torch.no_grad(), observe(model, HeadOutputs([-4, -3, -2, -1])) as seen:
        decoder.teacher_force(prompts, answers)
    z = seen["outputs"]["z"].values
    for row, (prompt, answer) in enumerate(zip(prompts, answers, strict=True)):
        if answer:
            with torch.no_grad(), observe(model, HeadOutputs(list(range(-len(answer), 0)))) as one:
                model.hf(torch.tensor([prompt + answer]), use_cache=False)
            np.testing.assert_allclose(z[row][:, :, -len(answer) :], one["outputs"]["z"].values[0], atol=2e-5)


def test_one_row_at_a_time_says_the_same(model, prompts):
    decoder = PrefixCachedDecoder(model, BEGINNING, longest=60)
    decoder.rows = 1
    for prompt in prompts:
        assert decoder.answer([prompt], 5, ends)[0].ids == plainly(model, prompt, 5, "answer", False)


def test_step_batches_read_what_prompts_share_once_and_answer_the_same(model):
    rng = np.random.default_rng(1)
    chains = []
    for count in (3, 1, 2):
        stem, own = BEGINNING + tuple(rng.integers(10, 150, 4).tolist()), []
        for _ in range(count):
            stem = stem + tuple(rng.integers(10, 150, int(rng.integers(2, 6))).tolist())
            own.append((*stem, 4, 5, 6))
        chains.append(own)
    decoder = PrefixCachedDecoder(model, BEGINNING, longest=60)
    seen = {}
    for number, (lines, some) in enumerate(step_batches(decoder, chains)):
        replies = decoder.answer(some, 4, ends)
        seen |= {(line, number): reply.ids for line, reply in zip(lines, replies, strict=True)}
    assert sorted(seen) == [(0, 0), (0, 1), (0, 2), (1, 0), (2, 0), (2, 1)]
    for (line, number), said in seen.items():
        assert said == plainly(model, chains[line][number], 4, "answer", False)


def test_what_two_prompts_share_leaves_each_a_token():
    assert common_prefix_length([(1, 2, 3), (1, 2, 3, 4)]) == 2 and common_prefix_length([(5,), (5,)]) == 0
