"""The joint probe: known heads are found, nothing is found where there is nothing, and the formulas are the plain ones."""

import numpy as np
import pytest
import torch

from headwise.core.errors import DataError
from headwise.core.progress import reporting
from headwise.probes.joint import (
    JointNetwork,
    JointTraining,
    choose_epochs,
    fit_joint,
    importance,
    inner_rows,
    standardised,
    train,
)

HEADS, WIDTH, ROWS = 12, 6, 240
CARRY = {0: 3, 1: 7, 2: 10}  # class -> the head that knows it


def planted(strength: float = 2.0, seed: int = 0):
    rng = np.random.default_rng(seed)
    labels = np.arange(ROWS) % 3
    x = rng.standard_normal((ROWS, HEADS, WIDTH)).astype(np.float32)
    for name, head in CARRY.items():
        x[labels == name, head] += strength * rng.standard_normal(WIDTH) / np.sqrt(WIDTH)
    return x, labels, rng.random(ROWS) < 0.6, np.arange(ROWS) // 3


@pytest.fixture(scope="module")
def fits():
    x, labels, trains, groups = planted(4.0)
    return fit_joint(x, labels, trains, groups, classes=3, seeds=3, shuffles=2), labels[~trains]


def test_the_head_that_knows_a_class_comes_first(fits):
    found, _ = fits
    for name, head in CARRY.items():
        assert np.abs(found.importance.mean(axis=0)[name]).argmax() == head


def test_the_probe_names_rows_it_has_not_seen_and_shuffled_ones_do_not(fits):
    found, truth = fits
    assert (found.logits.argmax(axis=2) == truth).mean() > 0.8
    assert (found.null_logits.argmax(axis=2) == found.null_labels).mean() < 0.5


def test_seeds_differ_and_the_same_seed_does_not():
    x, labels, trains, groups = planted()
    one, same = (fit_joint(x, labels, trains, groups, classes=3, seeds=2, shuffles=1) for _ in range(2))
    np.testing.assert_array_equal(one.logits, same.logits)
    np.testing.assert_array_equal(one.null_importance, same.null_importance)
    assert np.abs(one.importance[0] - one.importance[1]).max() > 0


def test_importance_is_gradient_times_activation():
    """Against autograd in float64, row by row and head by head, as the formula is written."""
    torch.manual_seed(0)
    network = JointNetwork(*(part.double() for part in JointNetwork.start(4, 5, 3, torch.Generator().manual_seed(1))))
    x, labels = torch.randn(9, 4, 5, dtype=torch.float64), torch.arange(9) % 3
    found = importance(network, x, labels)
    for name in range(3):
        rows = []
        for row in x[labels == name]:
            z = (row @ network.shared.T + network.shared_bias).requires_grad_()
            hidden = torch.relu(network.hidden @ z.flatten() + network.hidden_bias)
            logit = (network.output @ hidden + network.output_bias)[name]
            (gradient,) = torch.autograd.grad(logit, z)
            z = z.detach()
            rows.append([sum(float(gradient[h, d] * z[h, d]) for d in range(64)) / 64 for h in range(4)])
        np.testing.assert_allclose(found[name].numpy(), np.mean(rows, axis=0), rtol=1e-10)


def test_importance_of_a_class_without_rows_is_not_a_number():
    network = JointNetwork.start(2, 3, 3, torch.Generator().manual_seed(0))
    found = importance(network, torch.randn(4, 2, 3), torch.tensor([0, 0, 2, 2]))
    assert found[1].isnan().all() and found[[0, 2]].isfinite().all()


def test_the_network_is_the_published_one():
    network = JointNetwork.start(7, 10, 4, torch.Generator().manual_seed(0))
    assert (
        network.shared.shape == (64, 10) and network.hidden.shape == (512, 7 * 64) and network.output.shape == (4, 512)
    )
    x = torch.randn(3, 7, 10)
    z = torch.stack([torch.stack([network.shared @ head + network.shared_bias for head in row]) for row in x])
    hidden = torch.relu(z.reshape(3, -1) @ network.hidden.T + network.hidden_bias)
    torch.testing.assert_close(network.logits(x), hidden @ network.output.T + network.output_bias, rtol=1e-4, atol=1e-5)


def test_features_are_standardised_by_the_training_rows():
    x, _, trains, _ = planted()
    x[:, 2, 1] = 5.0  # never changes
    there = torch.from_numpy(trains)
    found = standardised(torch.from_numpy(x), there)
    plain = x.astype(np.float64)
    mean, deviation = plain[trains].mean(axis=0), plain[trains].std(axis=0)
    deviation[2, 1] = np.inf
    np.testing.assert_allclose(found.numpy(), (plain - mean) / deviation, atol=1e-4)


def test_training_is_torchs_own_adamw():
    """One epoch of one batch, with dropout's draw repeated, against nn.Linear layers and AdamW."""
    x, labels = torch.randn(8, 3, 4), torch.arange(8) % 2
    found = train(x, labels, 2, 1, JointTraining(batch=8), seed=5)
    generator = torch.Generator().manual_seed(5)
    start = JointNetwork.start(3, 4, 2, generator)
    order = torch.randperm(8, generator=generator)
    keep = torch.rand(8, 512, generator=generator).ge(0.3).float() / 0.7
    parts = [part.clone().requires_grad_() for part in start]
    optimiser = torch.optim.AdamW(parts, lr=1e-4)
    torch.nn.functional.cross_entropy(JointNetwork(*parts).logits(x[order], keep), labels[order]).backward()
    optimiser.step()
    for one, other in zip(found, parts, strict=True):
        torch.testing.assert_close(one, other.detach(), rtol=1e-5, atol=1e-7)


def test_epochs_are_chosen_on_whole_groups_inside_the_training_rows():
    x, labels, _, groups = planted(4.0)
    apart = inner_rows(groups, seed=0)
    assert 0.1 < apart.mean() < 0.3
    for group in np.unique(groups):
        assert len(set(apart[groups == group])) == 1
    rows = torch.from_numpy(x)
    epochs, losses = choose_epochs(rows, torch.from_numpy(labels), groups, 3, JointTraining(max_epochs=6), 0)
    lowest = int(np.argmin(losses))
    assert 1 <= epochs <= lowest + 1 and len(losses) <= 6


def test_training_ends_within_one_standard_error_of_the_lowest_loss(monkeypatch):
    """Losses given: the lowest is 0.5 with an error of 0.1 (two rows, 0.4 and 0.6), so 0.59 is enough and 0.61 is not."""
    given = iter([[1.0, 1.0], [0.61, 0.61], [0.59, 0.59], [0.4, 0.6], [0.7, 0.7], [0.7, 0.7], [0.7, 0.7]])
    monkeypatch.setattr("headwise.probes.joint.functional.cross_entropy", lambda *_, **__: torch.tensor(next(given)))
    start = JointNetwork.start(2, 3, 2, torch.Generator().manual_seed(0))
    monkeypatch.setattr("headwise.probes.joint._epochs", lambda *_: iter([start] * 20))
    x, labels, groups = torch.randn(10, 2, 3), torch.arange(10) % 2, np.arange(10)
    epochs, losses = choose_epochs(x, labels, groups, 2, JointTraining(), 0)
    assert epochs == 3 and len(losses) == 7  # patience of three epochs after the lowest


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"labels": np.zeros(ROWS, dtype=int)}, "at least two classes"),
        ({"trains": np.ones(ROWS, dtype=bool)}, "rows to evaluate on"),
        ({"classes": 2}, "count them from 0"),
        ({"x": np.full((ROWS, HEADS, WIDTH), np.nan)}, "not numbers"),
        ({"x": np.zeros((ROWS, 3))}, r"\(row, head, feature\)"),
        ({"groups": np.zeros(ROWS)}, "at least 5 questions"),
    ],
)
def test_what_cannot_be_fitted_is_refused(change, says):
    x, labels, trains, groups = planted()
    given = {"x": x, "labels": labels, "trains": trains, "groups": groups, "classes": 3} | change
    classes = given.pop("classes")
    with pytest.raises(DataError, match=says):
        fit_joint(*given.values(), classes=classes, seeds=1, shuffles=0)


def test_a_training_of_nothing_is_refused():
    with pytest.raises(DataError, match="max_epochs=0"):
        JointTraining(max_epochs=0)


def test_every_fitted_probe_is_reported():
    x, labels, trains, groups = planted()
    heard: list[tuple[str, int, int]] = []
    with reporting(lambda *given: heard.append(given)):
        fit_joint(x, labels, trains, groups, classes=3, seeds=2, shuffles=1)
    assert heard == [("joint probes", done, 3) for done in range(4)]
