"""The streaming study on planted readings whose answer is known, and its reader against the definitions."""

import re
from typing import Any

import numpy as np
import pytest
import torch
import xarray as xr
from planted import planted_profile_model
from synthetic.streaming import planted_beginnings, streaming_dataset

from headwise.instruments.answer_rows import ROW_STATISTICS
from headwise.probes.running_scores import LOGPROB_MEAN, LOGPROB_MIN
from headwise.seam import Structure
from headwise.stats.conformal import false_alarm_threshold
from headwise.studies import present
from headwise.studies.streaming import measure
from headwise.studies.streaming.figure import figure
from headwise.studies.streaming.spec import SHARES, StreamingOptions
from headwise.studies.streaming.words import describe

COUNT = 320


def concluded(**effects: float) -> xr.Dataset:
    return measure.finalize(*planted_beginnings(**effects), StreamingOptions())


def test_heads_that_carry_the_error_are_found_and_watched():
    dataset = concluded(error=1.5)
    end = dataset.isel(share=-1).sel(detector=measure.FITTED)
    assert float(end["auroc"]) > 0.85
    assert float(end["gain_low"]) > 0
    assert float(end["gain_question_low"]) > 0
    assert float(end["auroc_within_low"]) > 0.7
    assert dataset.attrs["default"] == measure.FITTED
    one = dataset.sel(prefix="whole answer", statistic="entropy")
    assert np.argwhere(one["q_within"].values < 0.05).tolist() == [[1, 2]]
    assert "beats the smallest log-probability" in describe(dataset).text()


def test_heads_that_carry_only_the_topic_show_nothing_among_similar_questions():
    dataset = concluded(topic=1.5)
    end = dataset.isel(share=-1).sel(detector=measure.FITTED)
    assert float(end["auroc"]) > 0.6  # the topic tells much of the error
    assert float(end["auroc_within_low"]) < 0.5
    assert float(end["gain_question_low"]) < 0
    assert int((dataset["q"].sel(statistic="entropy") < 0.05).sum()) > 0
    assert int((dataset["q_within"] < 0.05).sum()) == 0


def test_without_any_effect_the_log_probability_is_watched():
    dataset = concluded()
    assert dataset.attrs["default"] == LOGPROB_MIN
    assert "is not shown" in describe(dataset).short()
    low, high = (dataset[f"auroc_{end}"].sel(detector=[measure.FITTED, LOGPROB_MIN, "RAUQ"]) for end in ("low", "high"))
    assert float(((low <= 0.5) & (high >= 0.5)).mean()) > 0.7


def test_a_log_probability_that_carries_the_error_is_not_beaten_by_itself():
    dataset = concluded(logprob=1.0)
    assert dataset.attrs["default"] == LOGPROB_MIN
    assert float(dataset["auroc"].isel(share=-1).sel(detector=LOGPROB_MEAN)) > 0.65


def test_thresholds_hold_on_new_answers():
    """Set on one draw of answers, tried on 40 others: the mean false-alarm rate is at most the nominal one."""
    rates = []
    for seed in range(40):
        readings, answers = planted_beginnings(logprob=1.0, seed=seed)
        wrong = answers["label"].values == "wrong"
        highest = readings["logprob_min"].values[:, len(SHARES) - 1 :].max(axis=1)
        half = np.arange(COUNT) < COUNT // 2
        threshold = false_alarm_threshold(highest[half & ~wrong], 0.1)
        rates.append((highest[~half & ~wrong] > threshold.value).mean())
    assert np.mean(rates) < 0.1 + 3 * np.std(rates) / np.sqrt(len(rates))


def test_held_out_answers_have_no_part_in_the_stored_detector():
    readings, answers = planted_beginnings(error=1.0)
    options, wrong = StreamingOptions(), answers["label"].values == "wrong"
    out = measure.held_out(wrong, options)
    assert 0.3 < out.mean() < 0.36
    first = measure.fit_detector(readings, wrong, ~out, options)
    changed = readings.copy(deep=True)
    for name in ROW_STATISTICS:
        changed[name].values[out] = 99.0
    again = measure.fit_detector(changed, wrong ^ out, ~out, options)
    assert first.intercept_ == again.intercept_ and first.calibration_ == again.calibration_


def test_held_out_answers_have_no_part_in_the_choice_of_the_default():
    """However good a score is on them, the choice and the calibration's fit are those of the other answers."""
    readings, answers = planted_beginnings(error=1.5)
    wrong = answers["label"].values == "wrong"
    out = measure.held_out(wrong, StreamingOptions())
    changed = readings.copy(deep=True)
    changed["logprob_min"].values[out] = 100.0 * wrong[out, None]  # the log-probability tells all of these apart
    before, after = (measure.finalize(one, answers, StreamingOptions()) for one in (readings, changed))
    gains = [float(one["gain"].sel(detector=measure.FITTED, share=1.0)) for one in (before, after)]
    assert gains[1] < gains[0] - 0.02  # they count in the comparison of scores
    assert float(before["choice_gain"]) == float(after["choice_gain"])
    assert before.attrs["default"] == after.attrs["default"] == measure.FITTED
    for one in (before, after):
        known = np.isfinite(one["highest"].sel(detector=[measure.FITTED, LOGPROB_MIN, "RAUQ"]).values)
        assert (known == out).all()  # thresholds come from these alone
    slopes = [one["slope"].sel(detector=LOGPROB_MIN).item() for one in (before, after)]
    assert slopes[0] == slopes[1]


def test_the_reader_gives_the_scores_of_beginnings():
    """Log-probabilities of prefixes, recomputed from the model's logits, one text at a time."""
    model = planted_profile_model()
    random = np.random.default_rng(3)
    sizes = ((6, 5), (9, 1), (4, 11))
    ids = [
        (random.integers(3, 100, prompt).tolist(), random.integers(3, 100, answer).tolist()) for prompt, answer in sizes
    ]
    answers = xr.Dataset(
        {
            name: ("example", [" ".join(map(str, pair[side])) for pair in ids])
            for side, name in enumerate(("prompt_ids", "answer_ids"))
        },
        coords={"example": ["a", "b", "c"]},
    )
    readings = measure.read(Structure(model), answers)
    assert "row_self" not in readings
    for row, (prompt, answer) in enumerate(ids):
        with torch.no_grad():
            logits = model.hf(torch.tensor([prompt + answer])).logits[0].log_softmax(-1)
        logprobs = [float(logits[len(prompt) - 1 + place, token]) for place, token in enumerate(answer)]
        counts = [max(1, int(np.ceil(share * len(answer)))) for share in SHARES]
        counts += [min(count, len(answer)) for count in measure.checkpoints(11)]
        np.testing.assert_allclose(readings["logprob_min"][row], [-min(logprobs[:n]) for n in counts], rtol=1e-4)
        np.testing.assert_allclose(readings["logprob_mean"][row], [-np.mean(logprobs[:n]) for n in counts], rtol=1e-4)
        assert readings["rauq"][row, 0] == pytest.approx(-logprobs[0], rel=1e-4)


@pytest.mark.parametrize("options", [{}, {"within": True}, {"heads": True}, {"heads": True, "within": True}])
def test_figures_have_the_numbers(options: dict[str, Any]):
    dataset = concluded(error=1.0)
    dataset.attrs["headwise"] = "{}"
    drawn = figure(dataset, **options)
    keys = {panel.key for panel in drawn.panels}
    assert ({"growth", "gain", "legend"} <= keys) is not options.get("heads", False)


def test_the_layout_names_the_axes_of_every_panel_and_tells_the_colours_apart():
    (layout, *_) = present.describe("streaming", streaming_dataset()).axes
    assert "As the answer grows: x is Share of the answer written (%), y AUROC." in layout
    assert "Gain over min log-probability: one row per entry, x is AUROC difference." in layout
    entries = layout.partition("Legend (")[2].partition("): ")[2]
    colours = re.findall(r"\(([^()]*)\)", entries)
    assert len(colours) == 7 and len(set(colours)) == 7
