import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from headwise.core.errors import AtlasError, DataError
from headwise.probes.batched_logistic import LogisticProbe


def test_it_is_a_pipeline_of_scikit_learn(draw):
    x, wrong, _ = draw(2, 200, 60)
    probe = LogisticProbe(C=0.5, class_weight="balanced").fit(x[0], wrong)
    plain = make_pipeline(StandardScaler(), LogisticRegression(C=0.5, class_weight="balanced", tol=1e-9, max_iter=5000))
    plain.fit(x[0].astype(np.float64), wrong)
    assert probe.converged_ and probe.n_iter_ > 1
    assert probe.predict_proba(x[1]) == pytest.approx(plain.predict_proba(x[1].astype(np.float64)), abs=1e-3)
    assert probe.coef_[0] * plain[0].scale_ == pytest.approx(plain[1].coef_[0], abs=1e-3)
    assert (probe.predict(x[1]) == (probe.predict_proba(x[1])[:, 1] > 0.5)).all()
    assert probe.classes_[probe.predict(x[0]).astype(int)].dtype == bool


def test_without_scaling(draw, sklearn_fit):
    x, wrong, _ = draw(1, 100, 150)
    probe = LogisticProbe(standardise=False).fit(x[0], wrong)
    score, coef, _ = sklearn_fit(x[0], wrong, np.ones(100, dtype=bool), standardise=False)
    assert probe.coef_[0] == pytest.approx(coef, abs=1e-3)
    assert probe.decision_function(x[0]) == pytest.approx(score, abs=1e-2)


def test_it_survives_the_disk(draw, tmp_path):
    x, wrong, _ = draw(1, 100, 10)
    probe = LogisticProbe(C=2.0, class_weight="balanced").fit(x[0], wrong)
    probe.save(tmp_path / "deep" / "probe.safetensors")
    again = LogisticProbe.load(tmp_path / "deep" / "probe.safetensors")
    assert (again.coef_ == probe.coef_).all() and (again.intercept_ == probe.intercept_).all()
    assert (again.C, again.class_weight, again.standardise) == (2.0, "balanced", True)
    weighted = LogisticProbe(class_weight={False: 1.0, True: 3.0}).fit(x[0], wrong)
    weighted.save(tmp_path / "weighted")
    assert LogisticProbe.load(tmp_path / "weighted").class_weight == {False: 1.0, True: 3.0}


def test_weights_of_classes_are_scikit_learns(draw):
    x, wrong, _ = draw(1, 150, 20)
    probe = LogisticProbe(class_weight={False: 0.5, True: 4.0}, tol=1e-7).fit(x[0], wrong)
    plain = make_pipeline(
        StandardScaler(), LogisticRegression(class_weight={False: 0.5, True: 4.0}, tol=1e-9, max_iter=5000)
    )
    plain.fit(x[0].astype(np.float64), wrong)
    assert probe.predict_proba(x[0]) == pytest.approx(plain.predict_proba(x[0].astype(np.float64)), abs=1e-3)


def test_refusals(draw, tmp_path):
    x, wrong, _ = draw(1, 100, 10)
    with pytest.raises(DataError, match="not fitted"):
        LogisticProbe().decision_function(x[0])
    with pytest.raises(DataError, match="not fitted"):
        LogisticProbe().save(tmp_path / "probe")
    with pytest.raises(DataError, match="All 100 answers are of one class, True"):
        LogisticProbe().fit(x[0], np.ones(100, dtype=bool))
    with pytest.raises(DataError, match="X has 9 features, but LogisticProbe is expecting 10 features"):
        LogisticProbe().fit(x[0], wrong).predict_proba(x[0][:, 1:])
    with pytest.raises(DataError, match="dim 3"):
        LogisticProbe().fit(x, wrong)
    with pytest.raises(DataError, match="infinity"):
        LogisticProbe().fit(np.full((100, 3), np.inf), wrong)
    with pytest.raises(AtlasError, match="no probe"):
        LogisticProbe.load(tmp_path / "none")
    (tmp_path / "broken").write_bytes(b"no tensors here")
    with pytest.raises(AtlasError, match="damaged"):
        LogisticProbe.load(tmp_path / "broken")
