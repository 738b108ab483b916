import numpy as np
import pytest

from headwise.core.errors import AtlasError
from headwise.core.schema import Schema, check
from headwise.studies.registry import dataset_spec, schema_of

PROFILE = dataset_spec("profile").schema


def test_a_right_dataset_passes(profile):
    check(profile(), PROFILE)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda d: d.drop_vars("low"), r"profile: the variable 'low' with dims \(statistic, layer, head\) is missing"),
        (lambda d: d.drop_vars("label"), r"the coordinate 'label' with dims \(statistic\) is missing"),
        (
            lambda d: d.assign(value=d.value.transpose("layer", "head", "statistic")),
            r"'value' has dims \(layer, head, statistic\), expected \(statistic, layer, head\)",
        ),
        (lambda d: d.assign(high=d.high.astype("float64")), "'high' is float64, expected float32"),
        (lambda d: d.assign_coords(unit=("statistic", [1, 2])), "'unit' is int64, expected text"),
        (lambda d: d.rename(statistic="statistics"), "dim 'statistics'.* Did you mean 'statistic'"),
        (lambda d: d.drop_vars("layer"), "dim 'layer' needs a coordinate numbered from 0"),
        (lambda d: d.assign_coords(head=[1, 2]), r"coordinate 'head' must be 0, 1, ... 1, not \[1, 2\]"),
        (lambda d: d.assign_coords(layer=np.arange(3.0)), "coordinate 'layer' must be"),
        (lambda d: d.assign_attrs(record="value"), 'must be a JSON list of variable names such as ."value".'),
        (lambda d: d.assign_attrs(record='["valu"]'), "lists 'valu'.* Did you mean 'value'"),
        (lambda d: d.assign(x=("layer", [1, 2, 3]), y=1).assign_attrs(record='["x"]'), "has no dims layer and head"),
    ],
)
def test_what_is_wrong_is_named(profile, spoil, message):
    with pytest.raises(AtlasError, match=message):
        check(spoil(profile()), PROFILE)


@pytest.mark.parametrize("name", ["provenance", "record", "title"])
def test_missing_attribute_is_named(profile, name):
    dataset = profile()
    del dataset.attrs[name]
    with pytest.raises(AtlasError, match=f"attribute '{name}'"):
        check(dataset, PROFILE)


def test_another_study_and_another_version(profile):
    with pytest.raises(AtlasError, match="made by the study 'spectral' and cannot stand as 'profile'"):
        check(profile(study="spectral"), PROFILE)
    with pytest.raises(AtlasError, match="use a newer Headwise"):
        check(profile(study_version=PROFILE.version + 1), PROFILE)
    newer = Schema("profile", PROFILE.version + 1, PROFILE.variables)
    with pytest.raises(AtlasError, match="run the same headwise build again with --redo profile"):
        check(profile(), newer)
    check(profile(), Schema("profile", 9, PROFILE.variables, readable_since=PROFILE.version))
    with pytest.raises(AtlasError, match="--redo profile"):
        check(profile(), Schema("profile", 9, PROFILE.variables, readable_since=PROFILE.version + 1))
    with pytest.raises(AtlasError, match="use a newer Headwise"):
        check(profile(study_version=10), Schema("profile", 9, PROFILE.variables, readable_since=1))


def test_a_study_without_schema_is_held_to_what_holds_for_all(profile):
    dataset = profile(study="toy", study_version=7)[["value"]]
    check(dataset, schema_of("toy", dataset))
    with pytest.raises(AtlasError, match="dim 'width2'"):
        check(dataset.rename(statistic="width2"), schema_of("toy", dataset))
