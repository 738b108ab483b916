"""Answers that are scored while they are written: against the same answers read whole, alone, and by transformers' generate."""

from threading import Thread
from typing import Any

import numpy as np
import pytest
import torch
import xarray as xr
from answered import rows, write
from families import build as random_model
from families import texts
from planted import planted_profile_model, tiny_tokenizer
from transformers import TextIteratorStreamer

import headwise as hw
from headwise.core.errors import AtlasError, DataError, SeamError
from headwise.model import load
from headwise.probes.detector import Detector
from headwise.probes.running_scores import LOGPROB_MIN, ROWS, UNFITTED, RunningDetector, RunningScore
from headwise.seam import Structure
from headwise.studies.streaming import measure as streaming
from headwise.watching import Prompt, known_scores, watchable
from headwise.watching.fitted import WatchedScore

NEW = 7
QUESTION = "where was the river ?"


@pytest.fixture(scope="module")
def model() -> Any:
    return planted_profile_model()


@pytest.fixture(scope="module")
def atlas(tmp_path_factory: pytest.TempPathFactory, model: Any) -> Any:
    """60 answers: a long one is wrong."""
    folder = tmp_path_factory.mktemp("watched")
    questions = write(folder / "answers.jsonl", rows(60))
    return hw.build(model, ["streaming"], questions=questions, output=folder / "atlas", progress=False)


def prompts(model: Any, count: int = 4) -> list[Prompt]:
    words = [" ".join(model.tokenizer.decode([token]) for token in ids.tolist()) for ids in texts(5, 9, 3, 12)[:count]]
    return [Prompt(tuple(model.ids(text)), NEW, ends=lambda so_far, token: False) for text in words]


def hooks(model: Any) -> int:
    return sum(len(module._forward_hooks) + len(module._forward_pre_hooks) for module in model.hf.modules())


def as_answers(some: list[Prompt], ids: list[tuple[int, ...]]) -> xr.Dataset:
    return xr.Dataset(
        {
            "prompt_ids": ("example", [" ".join(map(str, one.ids)) for one in some]),
            "answer_ids": ("example", [" ".join(map(str, one)) for one in ids]),
        },
        coords={"example": [str(index) for index in range(len(some))]},
    )


@pytest.mark.parametrize("name", [*UNFITTED, streaming.FITTED])
def test_scores_are_those_of_the_same_answers_read_whole(model, atlas, name):
    watch, some = hw.watch(model, atlas, score=name), prompts(model)
    answers = watch.collect(watch.stream(some))
    ids = [tuple(event.token for event in answer.tokens) for answer in answers]
    assert [len(one) for one in ids] == [NEW] * 4
    readings = streaming.read(Structure(model), as_answers(some, ids))
    if name == streaming.FITTED:
        running = watch.watched.make()
        whole = streaming.fitted_scores(running.detector, readings)[name]
    else:
        whole = readings[streaming.SCORES[name]].values
    counts = [1, 2, 4]
    for row, answer in enumerate(answers):
        got = [answer.tokens[count - 1].score for count in counts] + [answer.score]
        at = [len(streaming.SHARES) + power for power in range(3)] + [len(streaming.SHARES) - 1]
        np.testing.assert_allclose(got, whole[row, at], rtol=2e-4, atol=2e-4)
        assert answer.probability == pytest.approx(float(watch.watched.calibration(np.array(answer.score))))


def test_heads_add_up_to_the_score(model, atlas):
    watch = hw.watch(model, atlas, score=streaming.FITTED)
    event = next(iter(watch.stream(prompts(model, 1))))
    assert len(event.heads) == 5
    assert sorted(event.heads.values(), key=abs, reverse=True) == list(event.heads.values())


def test_an_answer_that_is_generated_is_explained_as_one_that_is_given(model, atlas):
    scorer = hw.AnswerScorer.open(atlas.path, model, score=streaming.FITTED)
    said = scorer.score(QUESTION)
    given = scorer.score(QUESTION, said.answer)
    assert set(said.others) == set(given.others) == {ROWS, "Log-probability, min", "Log-probability, mean"}
    detector = scorer.scored_by.watched.make().detector
    assert sum(said.others.values()) + detector.intercept_ == pytest.approx(said.value, abs=1e-4)


def test_tokens_and_scores_are_those_of_generate(model, atlas):
    watch, some = hw.watch(model, atlas, score=streaming.FITTED), prompts(model)
    alone = watch.collect(watch.stream(some))
    texts_ = [list(one.ids) for one in some]
    width = max(map(len, texts_))
    ids = torch.tensor([[0] * (width - len(one)) + one for one in texts_])
    mask = torch.tensor([[0] * (width - len(one)) + [1] * len(one) for one in texts_])
    with watch:
        model.generate(
            input_ids=ids, attention_mask=mask, max_new_tokens=NEW, min_new_tokens=NEW, do_sample=False,
            stopping_criteria=[watch],
        )  # fmt: skip
        first = watch.answers
        model.generate(
            input_ids=ids[:2], attention_mask=mask[:2], max_new_tokens=3, min_new_tokens=3, do_sample=False,
            stopping_criteria=[watch],
        )  # fmt: skip
    assert [len(answer.tokens) for answer in watch.answers] == [3, 3]
    for one, other in zip(first, alone, strict=True):
        assert [event.token for event in one.tokens] == [event.token for event in other.tokens]
        np.testing.assert_allclose([e.score for e in one.tokens], [e.score for e in other.tokens], rtol=1e-4, atol=1e-4)
    assert hooks(model) == 0


def test_a_prompt_that_joins_gets_the_answer_that_it_gets_alone(model, atlas):
    watch, some = hw.watch(model, atlas, score=streaming.FITTED), prompts(model)
    alone = [watch.answer(one) for one in some]
    stream = watch.stream(some[:2])
    events: dict[int, list[Any]] = {}
    for count, event in enumerate(stream):
        events.setdefault(event.row, []).append(event)
        if count == 3:
            assert stream.add(some[2]) == 2
        if count == 6:
            assert stream.add(some[3]) == 3
    assert stream.add(some[0]) is None  # it has ended
    assert sorted(events) == [0, 1, 2, 3]
    for row, whole in enumerate(alone):
        assert [event.token for event in events[row]] == [event.token for event in whole.tokens]
        got, expected = [event.score for event in events[row]], [event.score for event in whole.tokens]
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)
        assert events[row][-1].finished == "length"


def test_a_stream_sees_its_own_passes_alone(model):
    """Two streams in turn, and one that is left unfinished."""
    watch, some = hw.watch(model, "RAUQ"), prompts(model)
    left = watch.stream(some[3:])
    next(left)
    first, second = watch.stream(some[:2]), watch.stream(some[2:3])
    events: list[list[Any]] = [[], [], []]
    for _ in range(NEW):
        for stream, width in ((first, 2), (second, 1)):
            for event in (next(stream) for _ in range(width)):
                events[event.row if stream is first else 2].append(event)
    for found, one in zip(events, some, strict=False):
        expected = watch.answer(one).tokens
        assert [event.token for event in found] == [event.token for event in expected]
        np.testing.assert_allclose([e.score for e in found], [e.score for e in expected], rtol=1e-4, atol=1e-4)
    for stream in (left, first, second):
        stream.close()
    assert hooks(model) == 0


def test_rows_end_by_themselves(model):
    some = prompts(model)
    ending = [
        Prompt(one.ids, NEW, ends=lambda so_far, token, n=n: len(so_far) == n) for n, one in enumerate(some, start=1)
    ]
    watch = hw.watch(model, "RAUQ")
    answers = watch.collect(watch.stream(ending))
    assert [len(answer.tokens) for answer in answers] == [1, 2, 3, 4]
    whole = watch.collect(watch.stream(some))
    for count, (cut, long) in enumerate(zip(answers, whole, strict=True), start=1):
        assert cut.score == pytest.approx(long.tokens[count - 1].score, rel=1e-4)
        assert cut.finished == "stop"


def test_cancelling_and_closing_leave_nothing(model):
    watch = hw.watch(model, "RAUQ")
    stream = watch.stream(prompts(model, 2))
    assert next(stream).row == 0
    assert next(stream).row == 1
    stream.cancel(0)
    rest = list(stream)
    assert rest[0].row == 0 and rest[0].finished == "cancelled" and rest[0].token == -1
    assert [event.row for event in rest[1:]] == [1] * (NEW - 1)
    open_stream = watch.stream(prompts(model, 2))
    next(open_stream)
    open_stream.close()
    assert list(open_stream) == []
    assert hooks(model) == 0
    with torch.no_grad():
        model.hf(torch.tensor([[1, 2, 3]]))  # the seam is as it was


def test_a_failing_callback_leaves_nothing(model):
    def fail(event: Any) -> None:
        raise RuntimeError("no")

    watch = hw.watch(model, LOGPROB_MIN, threshold=-1.0, on_alarm=fail)
    with pytest.raises(RuntimeError, match="no"):
        list(watch.stream(prompts(model, 1)))
    assert hooks(model) == 0


def test_sampling_depends_on_the_row_alone():
    watch = hw.watch(load(random_model("llama"), tokenizer=tiny_tokenizer()))
    ids = [tuple(one.tolist()) for one in texts(12, 9, 5)]
    some = [Prompt(one, NEW, temperature=1.5, top_p=0.9, seed=seed) for seed, one in enumerate(ids)]
    together = watch.collect(watch.stream(some))
    for one, answer in zip(some, together, strict=True):
        assert [event.token for event in watch.answer(one).tokens] == [event.token for event in answer.tokens]
    other = watch.answer(Prompt(ids[0], NEW, temperature=1.5, seed=99))
    assert [event.token for event in other.tokens] != [event.token for event in together[0].tokens]


def test_a_small_nucleus_or_temperature_is_greedy(model):
    watch, one = hw.watch(model), prompts(model, 1)[0]
    greedy = [event.token for event in watch.answer(Prompt(one.ids, NEW)).tokens]
    for sampling in ({"temperature": 2.0, "top_p": 1e-6}, {"temperature": 1e-300}):
        assert [event.token for event in watch.answer(Prompt(one.ids, NEW, seed=1, **sampling)).tokens] == greedy


def test_a_stop_text_ends_the_answer_and_is_no_part_of_it(model):
    watch, one = hw.watch(model), prompts(model, 1)[0]
    text = "".join(event.text for event in watch.stream(one))
    assert text == model.tokenizer.decode([event.token for event in watch.answer(one).tokens])
    stop = text[5:9]
    cut = list(watch.stream(Prompt(one.ids, NEW, stop=(stop,), ends=one.ends)))
    assert "".join(event.text for event in cut) == text[: text.index(stop)]
    assert cut[-1].finished == "stop"
    held = list(watch.stream(Prompt(one.ids, NEW, stop=(text[5:9] + "XX",), ends=one.ends)))
    assert "".join(event.text for event in held) == text  # what was held back is sent at the end


def test_alarms_are_checked_at_checkpoints_and_at_the_end(model):
    one = prompts(model, 1)[0]
    plain = hw.watch(model, LOGPROB_MIN).answer(one)
    scores = [event.score for event in plain.tokens]
    assert scores == sorted(scores)
    below_end = (scores[3] + scores[-1]) / 2 if scores[-1] > scores[3] else scores[-1] - 1e-6
    raised: list[Any] = []
    watch = hw.watch(model, LOGPROB_MIN, threshold=below_end, on_alarm=raised.append)
    answer = watch.answer(one)
    assert answer.alarm
    assert len(raised) == 1
    assert raised[0].index + 1 in (1, 2, 4, NEW)
    early = hw.watch(model, LOGPROB_MIN, threshold=scores[0] - 1e-6, action="stop").answer(one)
    assert (len(early.tokens), early.finished, early.alarm) == (1, "alarm", True)
    assert (
        hw.watch(model, LOGPROB_MIN, threshold=scores[0] - 1e-6, action="abstain").answer(one).text == "I am not sure."
    )
    with hw.watch(model, LOGPROB_MIN, threshold=scores[0] - 1e-6, action="stop") as stopping:
        ids = model.generate(torch.tensor([one.ids]), max_new_tokens=NEW, do_sample=False, stopping_criteria=[stopping])
    assert ids.shape[1] == len(one.ids) + 1
    assert stopping.answers[0].finished == "alarm"


def test_thresholds_come_from_answers_that_were_held_out(model, atlas):
    dataset = atlas["streaming"]
    fitted = dataset.sel(detector=streaming.FITTED)
    known = np.isfinite(fitted["highest"].values)
    assert (known == dataset["held_out"].values).all()
    watch = hw.watch(model, atlas, score=LOGPROB_MIN, at=0.2)
    correct = dataset["highest"].sel(detector=LOGPROB_MIN).values[~dataset["wrong"].values & known]
    assert (correct > watch.threshold).mean() <= 0.2
    assert "at most 20 %" in watch.note
    highest, end = dataset["highest"].sel(detector=LOGPROB_MIN), dataset["score"].sel(detector=LOGPROB_MIN, share=1.0)
    assert (highest >= end - 1e-6).values[known].all()


class LastToken(RunningScore):
    """A user's score, in five lines."""

    name = "last token"

    def update(self, step: Any) -> Any:
        return -step.logprob


def test_a_users_score_is_watched(model):
    answer = hw.watch(model, LastToken).answer(prompts(model, 1)[0])
    assert [event.score for event in answer.tokens] == pytest.approx([-event.logprob for event in answer.tokens])


@pytest.mark.parametrize("family", ["mistral", "jamba"])
def test_where_no_prompt_can_join_it_waits_for_the_next_batch(family):
    """A window's cache has dropped keys; a recurrent layer has a state: prompts of one length at a time."""
    other = load(random_model(family), tokenizer=tiny_tokenizer())
    watch = hw.watch(other, "RAUQ")
    some = [Prompt(tuple(ids.tolist()), NEW, ends=lambda so_far, token: False) for ids in texts(12, 9, 12)]
    stream = watch.stream(some)
    first = next(stream)
    assert stream.add(some[0]) is None
    answers = watch.collect(iter([first, *stream]))
    for one, answer in zip(some, answers, strict=True):
        alone = watch.answer(one)
        assert [event.token for event in alone.tokens] == [event.token for event in answer.tokens]
        assert alone.score == pytest.approx(answer.score, rel=1e-3)


def test_an_answer_that_ended_needs_no_position_beyond_the_models_last():
    """In a batch, an answer at the model's last position ends before others do."""
    small = load(random_model("opt", max_position_embeddings=32), tokenizer=tiny_tokenizer())
    watch = hw.watch(small, "RAUQ")
    some = [
        Prompt(tuple(ids.tolist()), 3 if line == 0 else 20, ends=lambda so_far, token: False)
        for line, ids in enumerate(texts(29, 5, 6, 7, 8))
    ]
    for one, answer in zip(some, watch.collect(watch.stream(some)), strict=True):
        alone = watch.answer(one)
        assert [event.token for event in alone.tokens] == [event.token for event in answer.tokens]
        assert alone.score == pytest.approx(answer.score, rel=1e-3)


def test_a_prompt_in_chunks_is_scored_alike_or_refused(model, atlas):
    """Four tokens at a time: the last of 13 would be taken for a token of the answer."""
    watch = hw.watch(model, atlas, score=streaming.FITTED)

    def score(length: int, **options: int) -> float:
        with watch:
            ids = texts(length)[0][None]
            model.generate(ids, max_new_tokens=4, do_sample=False, stopping_criteria=[watch], **options)
        return watch.answers[0].score

    assert score(12) == pytest.approx(score(12, prefill_chunk_size=4), rel=1e-4)
    with pytest.raises(SeamError, match="choose another prefill_chunk_size"):
        score(13, prefill_chunk_size=4)


@pytest.mark.parametrize(
    ("what", "sentence"),
    [
        (lambda m, a: hw.watch(m, a, score="RAUK"), "no score 'RAUK' that can be watched. Did you mean 'RAUQ'"),
        (lambda m, a: hw.watch(m, "RAUQ", at=0.1), "has no calibration answers here"),
        (lambda m, a: hw.watch(m, "RAUQ", at=0.1, threshold=2.0), "give one of at, risk and threshold"),
        (lambda m, a: hw.watch(m, "RAUQ", action="shout"), "'shout' is no action"),
        (lambda m, a: hw.watch(m).stream(" "), "the prompt is empty"),
        (lambda m, a: hw.watch(m).stream(QUESTION, max_new_tokens=100_000), "exceed the"),
        (lambda m, a: hw.watch(m).stream(QUESTION, mode="song"), "'song' is no mode of a prompt"),
        (lambda m, a: Prompt((1,), temperature=float("nan")), "is no way to sample"),
        (lambda m, a: Prompt(()), "the prompt is empty"),
        (lambda m, a: watchable("entropy"), "There is no score 'entropy'"),
    ],
)
def test_what_cannot_be_watched_is_refused(model, atlas, what, sentence):
    with pytest.raises(DataError, match=sentence.replace("(", r"\(")):
        what(model, atlas)


def test_another_model_is_refused(atlas):
    other = load(random_model("llama"), tokenizer=tiny_tokenizer())
    with pytest.raises(AtlasError, match="valid for their own model only"):
        hw.watch(other, atlas)


def test_an_atlas_without_the_study_says_how_to_add_it(model, tmp_path):
    questions = write(tmp_path / "answers.jsonl", rows(60))
    atlas = hw.build(model, ["answers"], questions=questions, output=tmp_path / "atlas", progress=False)
    with pytest.raises(AtlasError, match="headwise build --studies streaming -o"):
        known_scores(atlas)


def test_outside_of_its_with_a_watch_is_no_criterion(model):
    watch = hw.watch(model)
    with pytest.raises(SeamError, match="only inside `with watch:`"):
        model.generate(torch.tensor([[1, 2]]), max_new_tokens=2, stopping_criteria=[watch])
    with pytest.raises(SeamError, match="no answer was generated"):
        watch.answers  # noqa: B018


def test_beams_and_assistants_are_refused(model):
    with hw.watch(model, "RAUQ") as watch, pytest.raises(SeamError):
        model.generate(torch.tensor([[1, 2, 3]]), max_new_tokens=3, num_beams=2, stopping_criteria=[watch])
    with hw.watch(model) as watch, pytest.raises(SeamError, match="without an assistant model"):
        model.generate(
            torch.tensor([[11, 12, 13, 11, 12, 13, 11, 12]]),
            max_new_tokens=6,
            prompt_lookup_num_tokens=3,
            stopping_criteria=[watch],
        )
    assert hooks(model) == 0


def test_a_score_of_your_own_takes_a_calibration(model):
    watched = WatchedScore("mine", LastToken, highest=np.arange(40.0), wrong=np.arange(40) % 2 == 0)
    watch = hw.watch(model, watched, at=0.1)
    assert watch.threshold == 37.0


def test_generate_may_run_in_a_thread_with_a_streamer(model, atlas):
    """As transformers' documentation does it: generate in a thread, the text from a TextIteratorStreamer."""
    one = prompts(model, 1)[0]
    streamer = TextIteratorStreamer(model.tokenizer, skip_prompt=True)
    with hw.watch(model, atlas, score=streaming.FITTED) as watch:
        arguments = {"max_new_tokens": NEW, "do_sample": False, "stopping_criteria": [watch], "streamer": streamer}
        thread = Thread(target=model.generate, args=(torch.tensor([one.ids]),), kwargs=arguments)
        thread.start()
        seen = [(text, len(watch.answers[0].tokens)) for text in streamer if text]
        thread.join()
    assert seen
    whole = watch.watched
    assert len(watch.answers[0].tokens) == NEW
    assert watch.answers[0].score == pytest.approx(hw.watch(model, whole).answer(one).score, rel=1e-4)


def test_a_detector_of_another_kind_or_shape_is_refused(model):
    heads = np.random.default_rng(0).normal(size=(80, 2, 3))
    other = Detector().fit(heads, np.arange(80) % 2 == 0)
    with pytest.raises(DataError, match="cannot follow an answer that is being written"):
        hw.watch(model, WatchedScore("mine", lambda: RunningDetector(other, "mine")))
    rows = xr.DataArray(
        np.random.default_rng(0).normal(size=(80, 5, 2, 3)), dims=("example", "statistic", "layer", "head")
    )
    small = Detector().fit({ROWS: rows}, np.arange(80) % 2 == 0)
    with pytest.raises(AtlasError, match="is of 2 layers x 3 heads, and planted has 3 x 6"):
        hw.watch(model, WatchedScore("mine", lambda: RunningDetector(small, "mine")))
