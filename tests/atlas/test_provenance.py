import pytest
import xarray as xr

from headwise.core.errors import AtlasError
from headwise.core.provenance import Provenance, difference


def test_key_does_not_depend_on_the_order_of_mappings(provenance):
    a = provenance(parameters={"a": 1, "b": {"c": 2, "d": 3}})
    b = provenance(parameters={"b": {"d": 3, "c": 2}, "a": 1})
    assert a.key() == b.key()
    assert len(a.key()) == 16


def test_key_is_the_same_in_every_process():
    fixed = Provenance("profile", 1, {"id": "m"}, {"name": "x"}, {}, 0)
    assert fixed.key() == "90e68d49f6d8f46b"


@pytest.mark.parametrize(
    "change",
    [
        {"study": "spectral"},
        {"study_version": 99},
        {"model": {"id": "tiny", "digest": "d2"}},
        {"data": {"name": "packaged-passages", "digest": "p2", "size": 4}},
        {"parameters": {"block": 128, "offsets": [1, 2]}},
        {"seed": 1},
    ],
    ids=lambda change: next(iter(change)),
)
def test_every_part_of_the_identity_changes_the_key(provenance, change):
    assert provenance(**change).key() != provenance().key()


def test_environment_and_hour_do_not_change_the_key(provenance):
    assert provenance(environment={"torch": "9"}, created="2001-01-01T00:00:00+00:00").key() == provenance().key()


def test_attrs_round_trip(provenance):
    before = provenance(parameters={"range": (1, 2), "name": "λ", "none": None})
    dataset = xr.Dataset(attrs=before.to_attrs())
    assert Provenance.from_attrs(dataset.attrs) == before
    assert before.parameters["range"] == [1, 2]


def test_environment_names_versions(provenance):
    assert {"headwise", "torch", "transformers", "numpy", "python", "platform"} <= provenance().environment.keys()


def test_what_is_not_json_is_refused(provenance):
    with pytest.raises(AtlasError, match=r"The parameters of a provenance must be plain JSON .* is not"):
        provenance(parameters={"x": object()})
    with pytest.raises(AtlasError, match="finite"):
        provenance(parameters={"x": float("nan")})


def test_missing_or_foreign_provenance():
    with pytest.raises(AtlasError, match="its numbers have no origin; add it with"):
        Provenance.from_attrs({})
    with pytest.raises(AtlasError, match="not one Headwise wrote"):
        Provenance.from_attrs({"provenance": "by hand"})


def test_difference_in_words(provenance):
    a = provenance()
    b = provenance(
        data={"name": "my.jsonl", "digest": "q", "size": 10},
        model=a.model | {"dtype": "bfloat16"},
        parameters={"block": 64},
        seed=1,
    )
    assert difference(a, b) == [
        "data: packaged-passages (4) against my.jsonl (10)",
        "model: dtype float32 against bfloat16",
        "parameters: offsets [1, 2] against not set",
        "seed: 0 against 1",
    ]
    assert difference(a, provenance()) == []


def test_difference_of_content_alone(provenance):
    a = provenance()
    (sentence,) = difference(a, provenance(data=a.data | {"digest": "q"}))
    assert sentence.endswith("of the same name but other content")
