import json
import pickle

import numpy as np
import pytest
import xarray as xr
from safetensors.numpy import load_file, save_file
from scipy.special import expit

from headwise.core.errors import AtlasError, DataError
from headwise.probes import Detector, detector_file
from headwise.stats import auroc

from .test_linear import sheet


def hidden_state(labels, layers=6, width=10, seed=0):
    random = np.random.default_rng(seed)
    values = random.standard_normal((len(labels), layers, width))
    values[:, 4, 2] += 2 * labels
    return xr.DataArray(values, dims=("example", "layer", "width"))


@pytest.fixture
def spectral(planted):
    data = planted(1, answers=150, ranks=12)
    return data.values.astype(np.float32), data.labels


@pytest.fixture
def three_blocks(spectral, planted):
    values, labels = spectral
    log_probability = np.random.default_rng(3).standard_normal(len(labels)) + labels
    return {"LapEigvals": values, "hidden": hidden_state(labels), "log-probability": log_probability}, labels


def test_scores_are_those_of_a_plain_pipeline(spectral):
    values, labels = spectral
    detector = Detector(ks=(5,), folds=3).fit(values[:100], labels[:100])
    flat = values[..., :5].reshape(len(values), -1).astype(np.float64)
    expected = sheet(flat[:100], labels[:100])
    assert expit(detector.logit(values[100:])) == pytest.approx(expected.predict_proba(flat[100:])[:, 1], abs=1e-6)
    assert detector.logit(values[100:]) == pytest.approx(expected.decision_function(flat[100:]), abs=1e-5)


def test_k_is_chosen_and_longer_lists_are_read(spectral):
    values, labels = spectral
    detector = Detector(ks=(2, 5, 100)).fit({"LapEigvals": values}, labels)
    block = detector.blocks_["LapEigvals"]
    assert block.kind == "k"
    assert block.choice in (2, 5)
    assert block.mean.shape == (12, 8, block.choice)
    assert (detector.logit(values) == detector.logit(values[..., : block.choice])).all()
    assert detector.about_["n_wrong"] == labels.sum()


def test_the_layer_of_a_hidden_state_is_chosen(planted):
    labels = planted(1, answers=200).labels
    detector = Detector().fit({"hidden": hidden_state(labels)}, labels)
    assert (detector.blocks_["hidden"].kind, detector.blocks_["hidden"].choice) == ("layer", 4)
    fresh = np.random.default_rng(9).random(300) < 0.5
    assert auroc(detector.logit(hidden_state(fresh, seed=8)), fresh).value > 0.85


def test_explanation_adds_up_and_names_the_planted_heads(spectral, planted):
    values, labels = spectral
    detector = Detector().fit({"LapEigvals": values}, labels)
    told = detector.explain({"LapEigvals": values})
    assert told.per_head.dims == ("example", "layer", "head")
    total = told.per_head.sum(("layer", "head")) + told.attrs["intercept"]
    assert total.values == pytest.approx(detector.logit(values))
    assert told.logit.values == pytest.approx(detector.logit(values))
    assert told.probability.values == pytest.approx(detector.predict_proba(values)[:, 1])
    telling = (told.per_head[labels].mean("example") - told.per_head[~labels].mean("example")).values
    strongest = {tuple(map(int, np.unravel_index(place, telling.shape))) for place in np.argsort(-telling.ravel())[:9]}
    assert strongest == set(planted.HEADS)


def test_combined_detector_is_linear_and_adds_up(three_blocks):
    features, labels = three_blocks
    detector = Detector().fit(features, labels)
    told = detector.explain(features)
    assert told.feature.values.tolist() == list(features)
    assert (told.per_block.sum("feature") + told.attrs["intercept"]).values == pytest.approx(detector.logit(features))
    heads = told.per_head.sum(("layer", "head")).values
    assert heads == pytest.approx(told.per_block.sel(feature="LapEigvals").values)
    assert auroc(detector.logit(features), labels).value > 0.95


def test_order_of_layer_and_head_in_the_features_does_not_matter_to_the_explanation(spectral):
    values, labels = spectral
    turned = xr.DataArray(values, dims=("example", "layer", "head", "rank")).transpose(
        "example", "rank", "head", "layer"
    )
    first, second = Detector(ks=(5,)).fit(values, labels), Detector(ks=(5,)).fit(turned, labels)
    assert second.explain(turned).per_head.values == pytest.approx(first.explain(values).per_head.values, abs=1e-6)


def test_probabilities_are_calibrated_and_of_the_base_rate(planted):
    train, fresh = planted(1, answers=1200, shift=0.5), planted(2, answers=2000, shift=0.5)
    detector = Detector().fit(train.values, train.labels)
    probability = detector.predict_proba(fresh.values)
    assert probability.sum(axis=1) == pytest.approx(1)
    assert probability[:, 1].mean() == pytest.approx(0.4, abs=0.05)
    for low, high in ((0.0, 0.25), (0.25, 0.5), (0.5, 0.75), (0.75, 1.0)):
        rows = (probability[:, 1] >= low) & (probability[:, 1] < high)
        assert fresh.labels[rows].mean() == pytest.approx(probability[rows, 1].mean(), abs=0.1)


def test_saved_and_loaded_scores_are_the_same_bit_by_bit(three_blocks, tmp_path):
    features, labels = three_blocks
    detector = Detector().fit(features, labels, about={"model": "toy", "revision": "1"})
    detector.save(tmp_path / "sub" / "detector")
    assert sorted(path.name for path in (tmp_path / "sub").iterdir()) == ["detector.json", "detector.safetensors"]
    loaded = Detector.load(tmp_path / "sub" / "detector")
    assert (loaded.logit(features) == detector.logit(features)).all()
    assert (loaded.predict_proba(features) == detector.predict_proba(features)).all()
    assert loaded.explain(features).identical(detector.explain(features))
    assert loaded.about_ == detector.about_
    assert loaded.about_["model"] == "toy"
    assert (Detector.load(tmp_path / "sub" / "detector.json").logit(features) == detector.logit(features)).all()


def test_the_files_hold_no_pickle(three_blocks, tmp_path):
    features, labels = three_blocks
    Detector().fit(features, labels).save(tmp_path / "detector")
    json.loads((tmp_path / "detector.json").read_text())
    load_file(tmp_path / "detector.safetensors")
    for path in tmp_path.iterdir():
        with pytest.raises((pickle.UnpicklingError, ValueError, KeyError, EOFError, IndexError)):
            pickle.loads(path.read_bytes())


def test_what_does_not_fit_is_refused(three_blocks):
    features, labels = three_blocks
    detector = Detector().fit(features, labels)
    k = detector.blocks_["LapEigvals"].choice
    for change, message in [
        (
            {"LapEigvals": features["LapEigvals"][:, :11]},
            "12 layer x 8 head x . rank, but these features have 11 layer x",
        ),
        (
            {"LapEigvals": features["LapEigvals"][..., : k - 1]},
            f"reads {k} ranks per head of 'LapEigvals', but the features",
        ),
        ({"LapEigvals": features["LapEigvals"][..., 0]}, "but these features have 12 layer x 8 head; measure"),
        ({"hidden": features["hidden"][:, :3]}, "reads layer 4 of 'hidden', but the features have 3"),
        ({"log-probability": features["log-probability"][:50]}, "different numbers of examples"),
        ({"log-probability": features["log-probability"] * np.nan}, "'log-probability' is not a number in 150 of 150"),
    ]:
        with pytest.raises(DataError, match=message):
            detector.logit({**features, **change})
    with pytest.raises(DataError, match="needs the feature set 'hidden', but was given 'LapEigvals'"):
        detector.logit({"LapEigvals": features["LapEigvals"]})
    with pytest.raises(DataError, match="no feature set to fit"):
        Detector().fit({}, labels)
    with pytest.raises(DataError, match="not of the same heads"):
        Detector().fit({"a": features["LapEigvals"], "b": features["LapEigvals"][:, :, :4]}, labels)
    with pytest.raises(DataError, match="'b' has 100 examples, but 150 were expected"):
        Detector().fit({"a": features["LapEigvals"], "b": features["LapEigvals"][:100]}, labels)


def test_ranks_that_some_text_does_not_have_are_not_on_offer(spectral):
    values, labels = spectral
    short = values.copy()
    short[7, :, :, 6:] = np.nan
    assert Detector(ks=(5, 10)).fit(short, labels).blocks_["features"].choice == 5
    short[9] = np.nan
    with pytest.raises(DataError, match="no rank that is a number in every example"):
        Detector().fit(short, labels)
    with pytest.raises(DataError, match=r"is not a number in 2 of 150 examples \(first: row 7\)"):
        Detector().fit(short[..., 8], labels)


class TestFiles:
    @pytest.fixture
    def saved(self, spectral, tmp_path):
        values, labels = spectral
        Detector(ks=(5,), folds=3).fit(values, labels).save(tmp_path / "detector")
        return tmp_path / "detector"

    def spoil(self, saved, **changes):
        """Another JSON, rightly sealed."""
        path = saved.with_suffix(".json")
        document = json.loads(path.read_text()) | changes
        document.pop("seal")
        path.write_text(json.dumps(document | {"seal": detector_file._seal(document)}))

    def test_another_version(self, saved):
        self.spoil(saved, version=3)
        with pytest.raises(AtlasError, match="has version 3, and this Headwise reads version 2; fit it again"):
            Detector.load(saved)

    def test_a_digit_that_was_changed(self, saved):
        path = saved.with_suffix(".json")
        document = json.loads(path.read_text())
        path.write_text(json.dumps(document | {"intercept": document["intercept"] + 1e-9}))
        with pytest.raises(AtlasError, match="is damaged: it was changed after it was written; fit the detector again"):
            Detector.load(saved)

    def test_the_first_version_had_no_seal(self, saved):
        path = saved.with_suffix(".json")
        document = json.loads(path.read_text()) | {"version": 1}
        document.pop("seal")
        path.write_text(json.dumps(document))
        assert Detector.load(saved).intercept_ == document["intercept"]

    def test_another_format(self, saved):
        self.spoil(saved, format="cake")
        with pytest.raises(AtlasError, match="is not a detector of Headwise"):
            Detector.load(saved)

    def test_arrays_of_another_detector(self, saved):
        arrays = load_file(saved.with_suffix(".safetensors"))
        save_file({name: array + 1 for name, array in arrays.items()}, saved.with_suffix(".safetensors"))
        with pytest.raises(
            AtlasError, match=r"it is not the file that detector.json describes; fit the detector again"
        ):
            Detector.load(saved)

    def test_another_shape(self, saved):
        entry = json.loads(saved.with_suffix(".json").read_text())["blocks"]["features"]
        self.spoil(saved, blocks={"features": entry | {"shape": [12, 8, 4]}})
        with pytest.raises(AtlasError, match=r"shape \(12, 8, 5\) where \(12, 8, 4\) was expected"):
            Detector.load(saved)

    @pytest.mark.parametrize(
        "changes", [{"blocks": {"other": {}}}, {"calibration": {}}, {"intercept": None}, {"blocks": 3}]
    )
    def test_missing_parts(self, saved, changes):
        self.spoil(saved, **changes)
        with pytest.raises(AtlasError, match="is damaged"):
            Detector.load(saved)

    @pytest.mark.parametrize(
        ("about", "words"),
        [
            ({"k": 0}, r"Expected `int` >= 1 - at `\$\.k`"),
            ({"k": 10**9}, r"Expected `int` <= 100000 - at `\$\.k`"),
            ({"k": "many"}, r"at `\$\.k`"),
            ({"folds": 10**12}, r"at `\$\.folds`"),
            ({"seen": {"features": [1]}}, r"at `\$\.seen"),
            ({"seen": {"features": ["low", "high"]}}, r"at `\$\.seen"),
        ],
    )
    def test_sizes_that_no_detector_has(self, saved, about, words):
        self.spoil(saved, about=about)
        with pytest.raises(AtlasError, match=rf"is damaged: .*{words}.*; fit the detector again") as refused:
            Detector.load(saved)
        assert len(str(refused.value)) < 1000

    def test_what_is_not_a_number(self, saved):
        path = saved.with_suffix(".json")
        path.write_text(path.read_text().replace('"slope": ', '"slope": NaN, "was": '))
        with pytest.raises(
            AtlasError, match="is damaged: Out of range float values are not JSON compliant; fit the detector again"
        ):
            Detector.load(saved)

    def test_not_json_and_not_there(self, saved, tmp_path):
        saved.with_suffix(".json").write_text("{")
        with pytest.raises(AtlasError, match="it is not JSON"):
            Detector.load(saved)
        with pytest.raises(AtlasError, match="There is no detector at"):
            Detector.load(tmp_path / "nothing")

    def test_a_place_that_cannot_be_written(self, saved, spectral, tmp_path):
        (tmp_path / "file").write_text("")
        with pytest.raises(AtlasError, match="is a file where a folder is needed"):
            Detector.load(saved).save(tmp_path / "file" / "detector")


def test_an_answer_unlike_all_that_it_knows_is_told(three_blocks):
    blocks, labels = three_blocks
    detector = Detector(folds=3).fit(blocks, labels)
    assert not any(detector.unusual(detector.explain(blocks)))
    strange = {**blocks, "log-probability": blocks["log-probability"] + 100.0 * (np.arange(len(labels)) == 7)}
    told = detector.unusual(detector.explain(strange))
    assert told[7] == ["log-probability"]
    assert not any(told[:7] + told[8:])


def test_what_is_usual_survives_saving(three_blocks, tmp_path):
    blocks, labels = three_blocks
    detector = Detector(folds=3).fit(blocks, labels)
    detector.save(tmp_path / "detector")
    assert Detector.load(tmp_path / "detector").about_["seen"] == detector.about_["seen"]
