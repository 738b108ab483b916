"""Detector and LogisticProbe keep scikit-learn's contract: its own checks, clone, a pipeline, cross_val_score."""

import numpy as np
import pytest
import xarray as xr
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.exceptions import NotFittedError
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import StratifiedKFold, cross_val_predict, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

from headwise.core.errors import DataError
from headwise.probes import Detector, LogisticProbe

SMALL = Detector(min_per_class=2, folds=2)  # scikit-learn's checks fit on as few as ten rows


@parametrize_with_checks([SMALL, LogisticProbe(), LogisticProbe(standardise=False, class_weight="balanced")])
def test_scikit_learns_own_checks(estimator, check):
    check(estimator)


@pytest.fixture
def heads(planted):
    data = planted(0, answers=160)
    return data.values, data.labels


@pytest.mark.parametrize("estimator", [Detector(folds=5, seed=3, components=None), LogisticProbe(C=0.3, tol=1e-6)])
def test_a_clone_has_the_parameters_and_nothing_learnt(estimator, heads):
    values, labels = heads
    estimator.fit(values.reshape(len(labels), -1), labels)
    copy = clone(estimator)
    assert copy.get_params() == estimator.get_params()
    assert not [name for name in vars(copy) if name.endswith("_")]
    assert copy.set_params(**type(copy)().get_params()).get_params() == type(copy)().get_params()


@pytest.mark.parametrize("estimator", [Detector(folds=5), LogisticProbe()])
def test_in_a_pipeline_and_cross_validated(estimator, heads):
    values, labels = heads
    table = values.reshape(len(labels), -1)
    pipeline = make_pipeline(PCA(40, random_state=0), estimator)
    folds = StratifiedKFold(4, shuffle=True, random_state=0)
    found = cross_val_score(pipeline, table, labels, cv=folds, scoring="roc_auc")
    assert found.mean() > 0.7 and len(found) == 4
    score = cross_val_predict(pipeline, table, labels, cv=folds, method="predict_proba")[:, 1]
    for fold, (_, test) in enumerate(folds.split(table, labels)):
        assert roc_auc_score(labels[test], score[test]) == pytest.approx(found[fold])


def test_named_dims_are_cross_validated_too(heads):
    values, labels = heads
    named = xr.DataArray(values, dims=("example", "layer", "head"))
    folds = StratifiedKFold(4, shuffle=True, random_state=0)
    plain, array, table = (
        cross_val_score(Detector(folds=5), given, labels, cv=folds, scoring="roc_auc")
        for given in (values, named, values.reshape(len(labels), -1))
    )
    assert plain == pytest.approx(array) and plain == pytest.approx(table, abs=1e-9)


def test_any_two_classes_are_told_apart_and_survive_the_disk(heads, tmp_path):
    values, labels = heads
    names = np.where(labels, "wrong", "right")
    for estimator, given in ((Detector(folds=5), values), (LogisticProbe(), values[:, 0])):
        truth = estimator.fit(given, labels).predict_proba(given)
        named = clone(estimator).fit(given, names)
        assert named.classes_.tolist() == ["right", "wrong"]
        assert (named.predict_proba(given) == truth).all()
        assert (named.predict(given) == np.where(truth[:, 1] > 0.5, "wrong", "right")).all()
        assert named.score(given, names) > 0.6
        named.save(tmp_path / "saved")
        assert (type(estimator).load(tmp_path / "saved").predict(given) == named.predict(given)).all()


def test_a_decision_is_the_calibrated_log_odds(heads):
    values, labels = heads
    detector = Detector(folds=5).fit(values, labels)
    probability = detector.predict_proba(values)[:, 1]
    assert detector.decision_function(values) == pytest.approx(np.log(probability / (1 - probability)))
    assert (np.argsort(detector.decision_function(values)) == np.argsort(detector.logit(values))).all()


@pytest.mark.parametrize("estimator", [Detector(), LogisticProbe()])
def test_errors_are_headwises_and_scikit_learns(estimator, heads):
    values, labels = heads
    table = values.reshape(len(labels), -1)
    for error in (DataError, NotFittedError):
        with pytest.raises(error, match="is not fitted; call fit"):
            estimator.predict(table)
    for error in (DataError, ValueError):
        with pytest.raises(error, match="Only binary classification is supported"):
            clone(estimator).fit(table, np.arange(len(labels)) % 3)
        with pytest.raises(error, match="NaN"):
            clone(estimator).fit(np.where(table > 2, np.nan, table), labels)
