import numpy as np
import pytest

from headwise.core.errors import DataError
from headwise.stats import mann_whitney_maps
from headwise.stats.validation import as_groups, as_labels


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([True] * 40, "All 40 answers are wrong, so there is nothing to tell apart"),
        ([False] * 40, "All 40 answers are right, so there is nothing to tell apart"),
        ([True] * 5 + [False] * 40, "5 wrong and 40 right answers, and at least 20 of each are needed"),
        ([True] * 20 + [False] * 19 + [None], "leave out refused and unlabelled"),
        ([1] * 20 + [0] * 20 + [2], "leave out refused and unlabelled"),
        ([1.0] * 20 + [0.0] * 20 + [float("nan")], "leave out refused and unlabelled"),
        (["wrong"] * 40, "leave out refused and unlabelled"),
        ([[True, False]], r"have the shape \(1, 2\)"),
    ],
)
def test_what_is_wrong_with_labels_is_said(labels, message):
    with pytest.raises(DataError, match=message):
        as_labels(labels)


def test_one_class_and_too_few_are_refused():
    values = np.zeros((30, 2, 2))
    with pytest.raises(DataError, match="nothing to tell apart"):
        mann_whitney_maps(values, [True] * 30)
    with pytest.raises(DataError, match="at least 20 of each"):
        mann_whitney_maps(values, [True] * 15 + [False] * 15)


def test_least_can_be_set_and_lengths_must_agree():
    assert as_labels([1, 0, 0], min_per_class=1).tolist() == [True, False, False]
    with pytest.raises(DataError, match="There are 4 answers but 3 labels"):
        as_labels([1, 0, 0], rows=4, min_per_class=1)
    with pytest.raises(DataError, match="one group per answer"):
        as_groups(["a"], 2)
    assert as_groups(["b", "a", "b"], 3).tolist() == [1, 0, 1]
