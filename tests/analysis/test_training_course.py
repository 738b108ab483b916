"""An atlas over training: planted checkpoints, in which every change is located exactly, and simulated curves."""

from dataclasses import replace

import numpy as np
import pytest
import xarray as xr
from planted import PLANTED
from planted_training import BY, LOSS, STEPS, TEXTS, checkpoint, save_run
from synthetic.atlas import synthetic_atlas

import headwise as hw
from headwise.analysis import describe_emergence, emergence, emergence_figure
from headwise.analysis.training_course import SURE, halfway, halfway_by_resample
from headwise.analysis.training_display import equal_changes
from headwise.core.dims import head_name
from headwise.core.errors import AtlasError, StudyError
from headwise.figures.drawing import render
from headwise.studies import ProfileOptions

FEW = {"profile": ProfileOptions(repeats=6, period=16)}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return save_run(tmp_path_factory.mktemp("run"))


@pytest.fixture(scope="module")
def training(run, tmp_path_factory):
    output = tmp_path_factory.mktemp("atlas") / "training"
    return hw.build(run, ["profile"], data=TEXTS, options=FEW, checkpoints="step-*", output=output)


@pytest.fixture(scope="module")
def found(training):
    return emergence(training)


def test_studies_are_joined_along_the_step(training):
    joined = training["profile"]
    assert training.steps == list(STEPS) == joined["step"].values.tolist() and training.studies == ["profile"]
    assert joined["value"].dims == ("step", "statistic", "layer", "head")
    assert joined["label"].dims == ("statistic",)  # what is the same at all steps has no step
    for step in STEPS:
        own = training.at(step)["profile"]
        xr.testing.assert_equal(joined["value"].sel(step=step, drop=True), own["value"])
        xr.testing.assert_equal(joined["per_example"].sel(step=step, drop=True), own["per_example"])
    assert training.losses["loss"].values.tolist() == list(LOSS) and list(training.losses) == ["loss"]
    table = training.heads()
    assert len(table) == len(STEPS) * 18 and table.columns[0] == "step"
    again = hw.TrainingAtlas.open(training.location)
    assert again.steps == training.steps and again.losses.identical(training.losses)


def test_a_planted_head_emerges_between_its_two_checkpoints(found):
    table = found.table
    assert set(table["column"]) == {"profile.previous", "profile.induction"}  # the sink was there from the start
    for kind, (after, by) in BY.items():
        (row,) = table[table["column"] == f"profile.{kind}"].reset_index().to_dict("records")
        assert row["name"] == head_name(*PLANTED[kind])
        assert (row["after"], row["by"], row["by_low"], row["by_high"]) == (after, by, by, by)
        assert row["last"] > 0.9 > 0.2 > row["first"] and row["q"] < 1e-6


def test_the_order_is_found(found):
    (order,) = found.order
    assert (order.earlier, order.later) == ("profile.previous", "profile.induction")
    assert order.sure and order.share == 1 and order.reverse == 0


def test_checkpoints_without_a_difference_are_named(found):
    assert found.same_weights == ((0, 1), (16, 32))


def test_words_say_what_was_found_and_every_number_can_be_recomputed(found):
    words = describe_emergence(found)
    previous, induction = (head_name(*PLANTED[kind]) for kind in ("previous", "induction"))
    assert f"Previous token in {previous} by step 4 and Induction in {induction} by step 16" in words.short()
    text = words.text()
    assert f"{previous} attends to the previous token before {induction} does induction" in text
    assert "The loss falls most between steps 8 and 16, from 3.9 to 1." in text
    courses = {course.name: course for course in found.courses}
    known = {"step first": 0, "step last": 32, "checkpoints": 7, "layers": 3, "heads": 6}
    known |= {"fall from loss": 8, "fall to loss": 16, "before loss": 3.9, "behind loss": 1.0}
    checked = 0
    for number in words.numbers:
        kind, _, rest = number.source.partition(" ")
        if number.source in known:
            assert number.value == pytest.approx(known[number.source])
        elif kind in ("first", "last", "low", "high", "after", "by"):
            column, head = rest.split()
            row = next((one for one in courses[column].heads if one.head == head), None)
            layer, index = map(int, head[1:].split("H"))
            values = courses[column].values[:, layer, index]
            expected = {"first": values[0], "last": values[-1]}
            if row is not None:
                expected |= {"after": row.after, "by": row.by}
                expected |= {
                    "low": courses[column].low[-1, layer, index],
                    "high": courses[column].high[-1, layer, index],
                }
            assert number.value == pytest.approx(float(expected[kind]))
        elif number.source.startswith("before induction"):
            layer, index = map(int, rest.split()[1][1:].split("H"))
            assert number.value == pytest.approx(
                float(courses["profile.previous"].values[STEPS.index(8), layer, index])
            )
        elif kind == "order":
            assert number.value == 100 * found.order[0].share
        else:
            assert number.source in ("constant", "same weights"), number
            continue
        checked += 1
    assert checked > 15
    assert all(number.text in text for number in words.numbers)


def test_the_figure_has_curves_and_frames_where_most_happens(found):
    figure = emergence_figure(found)
    keys = [panel.key for panel in figure.panels]
    assert "profile.induction" in keys and "losses" in keys and "profile.duplicate" not in keys
    assert {"profile.previous 0", "profile.previous 4", "profile.previous 32"} <= set(keys)
    before, after = (figure.panel(f"profile.induction {step}") for step in (0, 32))
    assert not before.marks and [(mark.row, mark.column) for mark in after.marks] == [PLANTED["induction"]]
    curve = next(one for one in figure.panel("profile.induction").curves if one.key != "median")
    assert curve.x[0] == 0.5 and curve.x[1:].tolist() == list(map(float, STEPS[1:]))
    assert render(figure, ".png").startswith(b"\x89PNG")
    chosen = emergence_figure(found, steps=[0, 8])
    assert chosen.columns == 3
    with pytest.raises(StudyError, match="no checkpoint of step 3"):
        emergence_figure(found, steps=[3])


def test_an_interrupted_build_goes_on_and_repeats_nothing(run, training, tmp_path):
    def stop(study, done, total):
        if "step 4" in study and done:
            raise KeyboardInterrupt

    build = {"data": TEXTS, "options": FEW, "checkpoints": "step-*", "output": tmp_path / "atlas"}
    with pytest.raises(KeyboardInterrupt):
        hw.build(run, ["profile"], progress=stop, **build)
    part = hw.TrainingAtlas.open(tmp_path / "atlas")
    assert part.steps == [0, 1, 2]
    first = {}

    def record(study, done, total):
        first.setdefault(study.split(" at ")[1].split(" (")[0], done)

    whole = hw.build(run, ["profile"], progress=record, **build)
    assert [step for step in STEPS if first[f"step {step}"] == 0] == [4, 8, 16, 32]
    assert whole["profile"].drop_attrs().identical(training["profile"].drop_attrs())


def test_another_model_at_a_known_step_is_refused(training):
    with pytest.raises(AtlasError, match=r"is an atlas of .* and this model is"):
        hw.build(
            None, ["profile"], data=TEXTS, options=FEW, checkpoints={0: checkpoint(32), 1: checkpoint(0)},
            output=training.location.folder,
        )  # fmt: skip


def test_what_was_measured_otherwise_is_not_joined(tmp_path):
    atlases = {
        0: synthetic_atlas(tmp_path / "a", 6, 4, ["profile"]),
        1: synthetic_atlas(tmp_path / "b", 6, 4, ["profile"]),
    }
    assert hw.TrainingAtlas(atlases)["profile"].sizes["step"] == 2
    other = replace(atlases[1].provenance("profile"), seed=7)
    atlases[1].add("profile", atlases[1]["profile"].assign_attrs(other.to_attrs()))
    with pytest.raises(AtlasError, match=r"measured otherwise at step 1 than at step 0 .*seed"):
        hw.TrainingAtlas(atlases)["profile"]


def test_messages(tmp_path, training):
    atlas = synthetic_atlas(tmp_path / "a", 6, 4, ["profile", "relations"])
    with pytest.raises(AtlasError, match="at least two checkpoints and has 1"):
        hw.TrainingAtlas({0: atlas})
    with pytest.raises(AtlasError, match="is not an atlas over training"):
        hw.TrainingAtlas.open(atlas.location)
    with pytest.raises(AtlasError, match="no checkpoint of step 5; there are 0, 1, 2"):
        training.at(5)
    with pytest.raises(StudyError, match="Did you mean 'profile'"):
        training["profil"]
    with pytest.raises(StudyError, match=r"no column 'profile\.inductio'\. Did you mean"):
        emergence(training, columns="profile.inductio")
    other = synthetic_atlas(tmp_path / "b", 6, 4, ["profile"])
    with pytest.raises(AtlasError, match="'relations' was not measured at step 1"):
        hw.TrainingAtlas({0: atlas, 1: other})["relations"]
    with pytest.raises(AtlasError, match="is an ordinary atlas"):
        hw.build(None, ["profile"], checkpoints={0: checkpoint(0), 1: checkpoint(4)}, output=atlas.location.folder)


# ---- curves whose truth is known ------------------------------------------------------------------------------------

LEVELS = np.array([0.0, 0.1, 0.25, 0.45, 0.6, 0.85, 1.0])  # past half-way at index 4


def drawn(rng, levels=LEVELS, texts=40, noise=0.4):
    """(step, text, 1, 1): a curve, seen through texts that differ, in part alike at all steps."""
    own = rng.normal(0, noise, (1, texts)) + rng.normal(0, noise, (len(levels), texts))
    return (levels[:, None] + own)[:, :, None, None]


def test_halfway_is_the_last_crossing():
    assert int(halfway(LEVELS)) == 4
    assert int(halfway(1 - LEVELS)) == 4  # falling
    assert int(halfway(np.array([0.0, 0.9, 0.1, 0.8, 1.0]))) == 3  # not the first one
    assert halfway(np.zeros((3, 2, 2))).tolist() == [[2, 2], [2, 2]]


def test_the_interval_of_the_step_covers_the_true_one():
    rng = np.random.default_rng(0)
    missed = 0
    for draw in range(200):
        steps = halfway_by_resample(drawn(rng), 200, seed=draw)[:, 0, 0]
        low, high = np.quantile(steps, (0.025, 0.975), method="nearest")
        missed += not low <= 4 <= high
    assert missed <= 18  # 5 % of 200, and three standard errors


@pytest.mark.parametrize("levels", [LEVELS, np.array([0.0, 0.0, 0.5, 0.5, 0.5, 1.0, 1.0])])
def test_heads_that_emerge_together_are_rarely_ordered(levels):
    rng = np.random.default_rng(1)
    claimed = 0
    for draw in range(200):
        one, other = (halfway_by_resample(drawn(rng, levels), 200, seed=side)[:, 0, 0] for side in (draw, draw + 1000))
        claimed += max((one < other).mean(), (other < one).mean()) >= SURE
    assert claimed <= 18


def test_an_order_that_is_there_is_found():
    rng = np.random.default_rng(2)
    early, late = np.array([0, 0, 0.1, 0.9, 1, 1, 1]), np.array([0, 0, 0, 0.1, 0.9, 1, 1])
    found = 0
    for draw in range(50):
        one, other = (halfway_by_resample(drawn(rng, each), 200, seed=draw)[:, 0, 0] for each in (early, late))
        found += (one < other).mean() >= SURE
    assert found >= 45


def test_frames_are_where_things_change():
    assert equal_changes([np.array([0.0, 0, 0, 1, 1, 1])], 4) == [0, 2, 3, 5]
    assert equal_changes([np.zeros((3, 2, 2))], 5) == [0, 1, 2]
