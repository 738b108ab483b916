import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from headwise.probes.together import areas


@given(st.integers(0, 10_000), st.integers(1, 6))
def test_scikit_learns_numbers_with_many_ties(seed, levels):
    random = np.random.default_rng(seed)
    wrong = np.r_[True, False, random.random(20) < 0.5]
    scores = random.integers(0, levels, (3, 2, 22)).astype(float)
    found = areas(scores, wrong)
    assert found.shape == (3, 2)
    assert found[2, 1] == pytest.approx(roc_auc_score(wrong, scores[2, 1]), abs=1e-12)
