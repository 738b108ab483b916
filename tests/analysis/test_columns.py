"""One map a column, named as the head table names it, with its interval, test and baseline beside it."""

import numpy as np
import pytest
from synthetic.given import profile, scores
from synthetic.patterns import patterns_dataset
from synthetic.probing import probing_dataset
from synthetic.profile import profile_dataset
from synthetic.spectral import spectral_dataset

from headwise.analysis.columns import columns_of
from headwise.atlas.head_table import heads
from headwise.core.errors import AtlasError


def test_columns_are_those_of_the_record():
    studies = {
        "profile": profile_dataset(6, 4),
        "spectral": spectral_dataset(6, 4, examples=40),
        "probing": probing_dataset(6, 4),
    }
    studies["profile"].attrs["record"] = '["value"]'
    record, found = heads(studies), columns_of(studies)
    named = [column for column in found.columns if column.name in record]
    assert {column.study for column in named} == set(studies)
    assert found.names == list(record.index)
    for column in named:
        np.testing.assert_allclose(column.values.ravel(), record[column.name].to_numpy(dtype=float), rtol=1e-6)


def test_companions_are_of_the_same_column():
    dataset = spectral_dataset(5, 3, examples=40)
    column = next(c for c in columns_of({"spectral": dataset}).columns if c.name == "spectral.answer.laplacian.effect")
    one = dataset.sel(part="answer", feature="laplacian")
    for own, variable in ((column.low, "effect_low"), (column.high, "effect_high"), (column.p, "p"), (column.q, "q")):
        np.testing.assert_allclose(own, one[variable].values, rtol=1e-6)
    assert (column.baseline == 0.5).all()
    assert "answer" in column.label


def test_of_two_subjects_only_the_model_is_taken():
    dataset = patterns_dataset(4, 3)
    names = [column.name for column in columns_of({"patterns": dataset}).columns]
    assert names and all(name.startswith("patterns.model.") for name in names)


def test_a_study_of_fewer_layers_leaves_the_rest_unmeasured():
    found = columns_of({"a": scores(np.ones((4, 2)), "a"), "b": scores(np.ones((2, 2)), "b")})
    short = next(column for column in found.columns if column.study == "b")
    assert short.values.shape == (4, 2)
    assert np.isnan(short.values[2:]).all() and np.isfinite(short.values[:2]).all()


def test_an_unknown_study_gives_its_recorded_numbers_with_their_ends():
    (column,) = columns_of({"mine": scores(np.ones((2, 2)), "mine", half=0.5)}).columns
    assert column.name == "mine.score" and (column.low == 0.5).all() and (column.high == 1.5).all()


def test_no_study_of_heads_is_refused():
    flat = profile(np.ones((1, 2, 2))).isel(layer=0, head=0, drop=True)
    with pytest.raises(AtlasError, match="measured heads; add one with headwise build"):
        columns_of({"profile": flat})
