"""Logs of scored answers: what a row may be, and what the report says of them."""

import json
import math

import numpy as np
import pytest
from synthetic.streaming import streaming_dataset

from headwise import Atlas
from headwise.analysis import describe_drift, drift_report, read_log
from headwise.analysis.drift_log import reference_of
from headwise.core.errors import DataError
from headwise.studies.streaming.measure import FITTED, LOGPROB_MIN


def rows(count, *, shift=0.0, seed=0, **more):
    random = np.random.default_rng(seed)
    return [
        {
            "id": f"q{n}", "question": "who ?", "answer": "x" * int(random.poisson(30)), "score": "detector",
            "value": value, "probability": 0.4, "alarm": bool(value > 1.3), "unusual": ["spectral"] * (random.random() < 0.05),
            **more,
        }
        for n, value in enumerate(random.normal(shift, 1, count))
    ]  # fmt: skip


@pytest.fixture
def written(tmp_path):
    def write(name, found):
        (tmp_path / name).write_text("\n".join(map(json.dumps, found)), encoding="utf-8")
        return tmp_path / name

    return write


def test_a_row_needs_a_score_and_a_value_alone(written):
    log = read_log(written("log.jsonl", [{"score": "s", "value": 2}, {"score": "s", "value": -1.5, "further": [1]}]))
    assert list(log.value) == [2.0, -1.5] and log.score == "s" and len(log) == 2
    assert all(np.isnan(column).all() for column in (log.alarm, log.unusual, log.length)) and log.time == ("", "")


def test_unknown_and_false_are_two_things(written):
    base = {"score": "s", "value": 0}
    more = [{}, {"alarm": False, "unusual": [], "answer": ""}, {"alarm": True, "unusual": ["a", "b"], "answer": "Å!"}]
    log = read_log(written("log.jsonl", [base | one for one in more]))
    for column, known in ((log.alarm, [0, 1]), (log.unusual, [0, 1]), (log.length, [0, 2])):
        assert math.isnan(column[0]) and list(column[1:]) == known


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{", "is not a scored answer"),
        ("[1]", "Expected `object`, got `array`"),
        ('{"score": "s"}', "missing required field `value`"),
        ('{"value": 1}', "missing required field `score`"),
        ('{"score": "s", "value": NaN}', r"value`"),
        ('{"score": "s", "value": 1e999}', r"value`"),
        ('{"score": "s", "value": "high"}', r"Expected `float \\| null`, got `str` - at `\$.value`"),
        ('{"score": "s", "value": true}', r"at `\$.value`"),
        ('{"score": "s", "value": 1, "alarm": "no"}', r"at `\$.alarm`"),
        ('{"score": "s", "value": 1, "unusual": "spectral"}', r"at `\$.unusual`"),
        ('{"score": "s", "value": 1, "time": "yesterday"}', r"at `\$.time`"),
        ('{"score": "other", "value": 1}', "has the score 'other', and those before it 's'"),
    ],
)
def test_a_row_that_does_not_fit_is_refused_with_its_line(tmp_path, line, words):
    path = tmp_path / "log.jsonl"
    path.write_text(f'{{"score": "s", "value": 1}}\n\n{line}\n', encoding="utf-8")
    with pytest.raises(DataError, match=rf"line 3 of .*{words}"):
        read_log(path)


def test_a_file_without_rows_or_text_is_refused(tmp_path):
    (tmp_path / "empty.jsonl").write_text("\n\n")
    with pytest.raises(DataError, match="contains no scored answers"):
        read_log(tmp_path / "empty.jsonl")
    (tmp_path / "latin.jsonl").write_bytes(b'{"score": "\xe9"}')
    with pytest.raises(DataError, match="is not UTF-8 text"):
        read_log(tmp_path / "latin.jsonl")
    with pytest.raises(DataError, match="cannot be read"):
        read_log(tmp_path)


def test_a_shift_is_reported_with_where_it_began(written):
    when = {"time": "2026-03-01T12:00:05Z"}
    new = read_log(written("new.jsonl", rows(300, seed=1) + rows(300, shift=1.5, seed=2, **when)))
    report = drift_report(new, read_log(written("old.jsonl", rows(300, seed=3))))
    words = describe_drift(report)
    assert words.headline == "The answers drifted: 3 of 5 tests have q < 0.05 (score, alarms and score in windows)."
    assert (
        "first differs from the reference in answers 301 to 360 of the log (from 2026-03-01T12:00:05+00:00)"
        in words.text()
    )
    plain = json.loads(json.dumps(report.to_dict(), allow_nan=False))
    assert plain["drifted"] and plain["began"] == 5 and plain["windows"][5]["first"] == 301
    assert plain["answers"] == {"reference": 300, "new": 600}
    alarms = plain["alarm_share"]
    assert alarms["low"] < alarms["share"] == new.alarm.mean() < alarms["high"]


def test_no_shift_is_said_to_be_none(written):
    report = drift_report(*(read_log(written(f"{n}.jsonl", rows(200, seed=n))) for n in (5, 6)))
    words = describe_drift(report).text()
    assert not report.found.drifted and "No drift was found: none of 5 tests has q < 0.05." in words
    assert "In none of 4 windows" in words and "calibrate on new ones" not in words
    assert report.to_dict()["began"] is None
    short = describe_drift(drift_report(*(read_log(written(f"{n}.jsonl", rows(40, seed=n))) for n in (5, 6))))
    assert not short.observations  # one window is the whole log


def test_what_the_reference_lacks_is_reported_without_a_test(written):
    bare = [{"score": "detector", "value": row["value"]} for row in rows(100)]
    new = read_log(written("new.jsonl", rows(100, seed=1)))
    report = drift_report(new, read_log(written("bare.jsonl", bare)))
    assert [shift.name for shift in report.found.shifts] == ["value"]
    assert f"Alarms: {100 * new.alarm.mean():.0f} % of the new answers (" in describe_drift(report).text()
    other = drift_report(read_log(written("bare.jsonl", bare)), new)
    assert "Alarms" not in describe_drift(other).text() and other.to_dict()["alarm_share"]["share"] is None


def test_rows_are_counted_as_in_the_file(written):
    log = read_log(written("log.jsonl", rows(100) + rows(100, shift=3, seed=1)))
    report = drift_report(log.part("new", slice(100, None)), log.part("old", slice(100)))
    assert report.found.first == 0 and report.rows(0) == (101, 150)


def test_scores_of_different_kinds_are_not_compared(written):
    other = [row | {"score": "logprob_min"} for row in rows(50)]
    with pytest.raises(DataError, match=r"a\.jsonl has the score 'detector' and b\.jsonl 'logprob_min'"):
        drift_report(read_log(written("a.jsonl", rows(50))), read_log(written("b.jsonl", other)))


def test_every_number_of_the_words_has_a_source(written):
    words = describe_drift(drift_report(*(read_log(written(f"{n}.jsonl", rows(90, seed=n))) for n in (1, 2))))
    assert all(number.text in words.text() for number in words.numbers) and len(words.numbers) > 20


def test_an_atlas_is_a_reference_with_all_held_out_answers(tmp_path):
    found = streaming_dataset()
    out = np.flatnonzero(found["held_out"].values)
    certain = found["probability"].copy()
    row = list(found["detector"].values).index(FITTED)
    certain[row, out[0]], certain[row, out[1]] = 1.0, 0.0  # as a probability that close to 1 or 0 is stored
    atlas = Atlas.create(tmp_path / "atlas")
    atlas.add("streaming", found.assign(probability=certain))
    fitted = reference_of(atlas.path, FITTED)
    assert len(fitted) == len(out) and np.isfinite(fitted.value).all()
    assert (fitted.value.argmax(), fitted.value.argmin()) == (0, 1)
    plain = reference_of(atlas.path, LOGPROB_MIN)
    assert (plain.value == found["score"].sel(detector=LOGPROB_MIN, share=1.0).values[out]).all()
