import logging

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.preprocessing import StandardScaler

import headwise as hw
from headwise.core.errors import DataError, ModelError
from headwise.corpora import Example, packaged_questions
from headwise.probes.batched_logistic import cells as module
from headwise.probes.batched_logistic import fit_cells
from headwise.seam import Structure
from headwise.stats.permutation import permuted_labels
from headwise.studies.passes import batches


def check(fits, x, wrong, folds, sklearn_fit, *, close=1e-3, **options):
    """Coefficients (of the probe's own features), scores and AUROC of every cell and fold against scikit-learn."""
    assert fits.converged.all()
    for cell in range(len(x)):
        for fold in np.unique(folds):
            train = folds != fold
            score, coef, scale = sklearn_fit(x[cell], wrong, train, **options)
            assert np.abs(fits.coefficients[cell, fold] * scale - coef).max() < close
            assert fits.scores[cell, ~train] == pytest.approx(score[~train], abs=50 * close, rel=20 * close)
            own = wrong[~train]
            pair = 1 / (own.sum() * (~own).sum())  # answers as good as equal may stand either way round
            assert fits.auroc[cell, fold] == pytest.approx(roc_auc_score(own, score[~train]), abs=1e-3 + pair)


@pytest.mark.parametrize(
    ("rows", "width", "scale", "standardise"),
    [
        (200, 30, 1.0, True),  # more rows than features
        (120, 300, 1.0, True),  # fewer: every fold can be separated
        (200, 30, 1.0, False),
        (120, 300, 0.3, False),
        (160, 40, 500.0, True),  # large activations
    ],
)
def test_the_optimum_is_scikit_learns(draw, sklearn_fit, rows, width, scale, standardise):
    x, wrong, folds = draw(3, rows, width, scale=scale)
    fits = fit_cells(x, wrong, folds, standardise=standardise, coefficients=True)
    check(fits, x, wrong, folds, sklearn_fit, standardise=standardise)


def test_weights_and_c_are_scikit_learns(draw, sklearn_fit):
    x, wrong, folds = draw(2, 160, 40)
    fits = fit_cells(x, wrong, folds, c=0.05, weights="balanced", coefficients=True)
    check(fits, x, wrong, folds, sklearn_fit, C=0.05, class_weight="balanced")


def test_weights_of_rows_are_scikit_learns(draw):
    x, wrong, folds = draw(2, 160, 40)
    weights = np.random.default_rng(0).uniform(0.05, 1.5, 160)
    fits = fit_cells(x, wrong, folds, weights=weights, coefficients=True)
    for cell in range(2):
        for fold in np.unique(folds):
            train = folds != fold
            scaler = StandardScaler().fit(x[cell][train])
            plain = LogisticRegression(tol=1e-10, max_iter=5000)
            plain.fit(scaler.transform(x[cell][train]), wrong[train], sample_weight=weights[train])
            assert np.abs(fits.coefficients[cell, fold] * scaler.scale_ - plain.coef_[0]).max() < 1e-3


@pytest.mark.real
@pytest.mark.xdist_group("default model")
def test_the_optimum_is_scikit_learns_on_real_activations(sklearn_fit):
    """The default model's activations before the MLP at the last token of questions; long ones against short ones."""
    try:
        model = hw.load()
    except ModelError as error:
        pytest.skip(f"the default model is not here: {error}")
    structure = Structure(model)
    asked = [item.question for item in packaged_questions().sample(120, seed=0).items]
    examples = [Example(text, "question", tuple(model.ids(text))) for text in asked]
    parts, places = [], []
    for batch in batches(examples, 2048, structure.device):
        with torch.no_grad(), hw.observe(structure, hw.Activations(("mlp_in",), "last"), valid=batch.valid) as seen:
            structure.decoder(input_ids=batch.ids, use_cache=False)
        parts.append(seen["activations"]["activation"].values[:, 0, :, 0])  # (row, layer, feature)
        places.extend(batch.indices)
    x = np.ascontiguousarray(np.moveaxis(np.concatenate(parts), 1, 0)[[9, 20, 29]])
    lengths = np.array([len(asked[place]) for place in places])
    wrong = lengths > np.median(lengths)
    folds = np.random.default_rng(0).permutation(len(wrong)) % 3
    check(fit_cells(x, wrong, folds, coefficients=True, tolerance=1e-6), x, wrong, folds, sklearn_fit)


def test_a_feature_that_is_constant_in_a_fold(draw, sklearn_fit):
    x, wrong, folds = draw(1, 120, 20)
    x[:, :, 3] = 7.0  # everywhere
    x[:, :, 4] = np.where(folds == 2, x[:, :, 4], -2.5)  # in the training rows of fold 2
    x[:, :, 5] = 1e4 + 1e-2 * np.arange(120)  # hardly, far from 0
    fits = fit_cells(x, wrong, folds, coefficients=True)
    check(fits, x, wrong, folds, sklearn_fit)
    assert (fits.coefficients[0, :, 3] == 0).all() and fits.coefficients[0, 2, 4] == 0


@pytest.mark.parametrize("seed", [8, 32, 34])
def test_outliers_in_half_precision(seed, sklearn_fit):
    """Features of all sizes with rows far out, some of them only in a fold that is left out."""
    random = np.random.default_rng(seed)
    x = random.standard_t(1.5, (1, 120, 15)) * np.exp(2 * random.standard_normal(15)) + 5 * random.standard_normal(15)
    folds = random.permutation(120) % 4
    x[0, :, 0] = np.where((folds == 1) & (random.random(120) < 0.1), 100, 1)
    x[0, :, 2] = x[0, :, 1] = random.integers(0, 2, 120)
    x[0, :, 3] *= 1e-3
    x = x.astype(np.float16)
    wrong = random.random(120) < 0.4
    fits = fit_cells(x, wrong, folds, coefficients=True)
    assert fits.steps.max() < 200
    check(fits, x, wrong, folds, sklearn_fit)


def test_the_rows_of_a_fold_have_no_say_in_its_probe(draw):
    x, wrong, folds = draw(2, 120, 30)
    fits = fit_cells(x, wrong, folds, coefficients=True)
    other, flipped = x.copy(), wrong.copy()
    other[:, folds == 1] = np.random.default_rng(5).standard_normal(other[:, folds == 1].shape) * 4
    flipped[folds == 1] = ~flipped[folds == 1]
    again = fit_cells(other, flipped, folds, coefficients=True)
    assert again.coefficients[:, 1] == pytest.approx(fits.coefficients[:, 1], abs=2e-3)
    assert np.abs(again.coefficients[:, 0] - fits.coefficients[:, 0]).max() > 0.1


def test_sets_of_labels_are_fitted_as_if_alone(draw):
    x, wrong, folds = draw(3, 120, 40)
    sets = np.stack([wrong, *permuted_labels(wrong, folds, sets=2)])
    together = fit_cells(x, sets, folds, coefficients=True, tolerance=1e-7)
    assert together.scores.shape == (3, 3, 120) and together.auroc.shape == (3, 3, 4)
    assert together.coefficients.shape == (3, 3, 4, 40) and together.intercepts.shape == (3, 3, 4)
    for place, labels in enumerate(sets):
        alone = fit_cells(x, labels, folds, tolerance=1e-7)
        assert together.scores[place] == pytest.approx(alone.scores, abs=2e-4)
        assert together.auroc[place] == pytest.approx(alone.auroc, abs=1e-3)


def test_coefficients_give_the_scores(draw):
    x, wrong, folds = draw(2, 120, 40)
    fits = fit_cells(x, wrong, folds, coefficients=True)
    every = np.einsum("crd,cfd->crf", x, fits.coefficients) + fits.intercepts[:, None]
    assert np.take_along_axis(every, folds[None, :, None], 2)[..., 0] == pytest.approx(fits.scores, abs=1e-3)


def test_neither_blocks_nor_threads_change_the_result(draw, monkeypatch):
    x, wrong, folds = draw(7, 120, 40)
    whole = fit_cells(x, wrong, folds, tolerance=1e-7)
    monkeypatch.setattr(module, "_BLOCK_BYTES", {"cpu": 1})
    threads = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        parts = fit_cells(torch.from_numpy(x), wrong, folds, tolerance=1e-7)
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(threads)
    assert parts.scores == pytest.approx(whole.scores, abs=2e-4)
    assert parts.auroc == pytest.approx(whole.auroc, abs=1e-3)


def test_one_cell_that_tells_and_a_null(draw):
    x, wrong, folds = draw(6, 400, 20, shift=0.0)
    x[4, :, 0] += 2.0 * wrong
    found = fit_cells(x, wrong, folds).auroc.mean(axis=-1)
    null = fit_cells(x, permuted_labels(wrong, folds, sets=20), folds).auroc.mean(axis=-1)  # (set, cell)
    assert np.flatnonzero(found > null.max(axis=1).max()).tolist() == [4]
    assert null.mean() == pytest.approx(0.5, abs=0.02)


def test_shuffled_labels_keep_the_share_of_every_fold(draw):
    _, wrong, folds = draw(1, 120, 4)
    sets = permuted_labels(wrong, folds, sets=5)
    assert (sets != wrong).any(axis=1).all() and (sets[0] != sets[1]).any()
    for fold in range(4):
        assert (sets[:, folds == fold].sum(axis=1) == wrong[folds == fold].sum()).all()
    assert (permuted_labels(wrong, folds, sets=5) == sets).all()


def test_what_did_not_converge_says_so(draw, caplog):
    x, wrong, folds = draw(2, 120, 40)
    with caplog.at_level(logging.WARNING):
        fits = fit_cells(x, wrong, folds, max_steps=2)
    assert not fits.converged.any() and (fits.steps == 2).all()
    assert "8 of 8 probes did not converge in 2 steps" in caplog.text


def test_refusals(draw):
    x, wrong, folds = draw(2, 120, 10)
    one = wrong.copy()
    one[folds == 2] = True
    with pytest.raises(DataError, match="fold 3 is tested on 30 answers that are all wrong"):
        fit_cells(x, one, folds)
    with pytest.raises(DataError, match="fold 1 is trained on 60 answers that are all right"):
        fit_cells(x, wrong & (folds < 2), folds // 2)
    with pytest.raises(DataError, match="under label set 2"):
        fit_cells(x, np.stack([wrong, one]), folds)
    with pytest.raises(DataError, match="at least two folds"):
        fit_cells(x, wrong, np.zeros(120))
    with pytest.raises(DataError, match="one label"):
        fit_cells(x, wrong[:-1], folds)
    with pytest.raises(DataError, match="shape"):
        fit_cells(x[0], wrong, folds)
    with pytest.raises(DataError, match="balanced"):
        fit_cells(x, wrong, folds, weights="even")
    x[1, 17, 3] = np.nan
    with pytest.raises(DataError, match="cell 1, row 17"):
        fit_cells(x, wrong, folds)
