"""One contract for every study: schema, figure, words, head table, comparison, plan, and old names that still open."""

from __future__ import annotations

import json
from contextlib import suppress

import numpy as np
import pytest
import xarray as xr
from synthetic.atlas import MAKERS, RECORD
from synthetic.circuits import circuits_dataset
from synthetic.samples import samples
from synthetic.sparsity import sparsity_dataset
from synthetic.transfer import transfer

from headwise.analysis import columns_of, compare
from headwise.atlas import Atlas
from headwise.core.errors import StudyError
from headwise.core.provenance import Provenance
from headwise.core.schema import annotate, check, upgrade
from headwise.figures import Legend, from_payload, to_payload
from headwise.model import read_card
from headwise.studies.inputs import StudyInputs
from headwise.studies.planning import planned_inputs
from headwise.studies.present import describe, figure_of, figures_on_page, has_figure, headline
from headwise.studies.registry import dataset_spec, studies

EVERY = MAKERS | {
    "circuits": circuits_dataset,
    "samples": lambda *_: samples(),
    "sparsity": sparsity_dataset,
    "transfer": lambda *_: transfer(60),
}
READ = {"profile", "patterns", "causal", "circuits", "spectral", "probing", "relations", "functions"}  # have a reading
TABLES = {"answers", "salience"}  # neither figure nor words


def test_every_dataset_is_held_to_the_contract() -> None:
    assert set(EVERY) == {dataset.name for spec in studies().values() for dataset in spec.produces} - TABLES


@pytest.fixture(scope="module", params=sorted(EVERY))
def made(request: pytest.FixtureRequest) -> tuple[str, xr.Dataset]:
    dataset = EVERY[request.param](8, 6)
    return request.param, dataset.assign_attrs(
        {"record": json.dumps(RECORD.get(request.param, [])), "title": "t", **dataset.attrs}
    )


def test_the_dataset_is_what_its_schema_says(made: tuple[str, xr.Dataset]) -> None:
    name, dataset = made
    spec = dataset_spec(name)
    assert spec is not None
    check(dataset, spec.schema)
    annotated = annotate(dataset, spec.schema)
    assert not [str(one) for one, array in annotated.variables.items() if not array.attrs.get("long_name")]


def test_every_figure_survives_the_way_to_the_browser(made: tuple[str, xr.Dataset]) -> None:
    name, dataset = made
    if not has_figure(name):
        pytest.skip("a table, without a figure")
    drawn = list(figures_on_page(name, dataset))
    assert drawn
    for variant, figure in drawn:
        payload = json.loads(json.dumps(to_payload(figure), allow_nan=False))
        assert to_payload(from_payload(payload)) == to_payload(figure), variant.key


def test_every_choice_that_an_option_declares_is_drawn(made: tuple[str, xr.Dataset]) -> None:
    """Or refused with a reason, such as a kind of figure that needs a study of another version."""
    name, dataset = made
    spec = dataset_spec(name)
    assert spec is not None
    for option, declared in spec.figure_options.items():
        for choice in declared.choices:
            needed = {other: values[0] for other, values in declared.needs.items()}
            with suppress(StudyError):
                assert figure_of(name, dataset, **needed, **{option: choice}).panels
        if declared.choices:
            with pytest.raises(StudyError, match=f"has no {option} 'no such'"):
                figure_of(name, dataset, **{option: "no such"})


def test_every_sentence_has_its_numbers(made: tuple[str, xr.Dataset]) -> None:
    name, dataset = made
    if not has_figure(name):
        pytest.skip("a table, without words")
    words = describe(name, dataset)
    text = words.text()
    assert (words.short() and words.short() in text) or len(words.short()) < len(text)
    assert all(number.text in text + words.short() for number in words.numbers)


MAX_HEADLINE, MAX_PER_MAP = 40, 500  # words


def test_its_words_have_two_lengths(made: tuple[str, xr.Dataset]) -> None:
    """A headline that fits an alternative text, and at most a page for each map that the study's page shows."""
    name, dataset = made
    if not has_figure(name):
        pytest.skip("a table, without words")
    words = describe(name, dataset)
    assert 0 < len(words.short().split()) <= MAX_HEADLINE, words.short()
    assert headline(name, dataset) == words.short()
    maps = {panel.key for _, figure in figures_on_page(name, dataset) for panel in figure.panels if panel.title}
    assert len(words.text().split()) <= MAX_PER_MAP * len(maps)


def test_its_layout_is_that_of_its_figure(made: tuple[str, xr.Dataset]) -> None:
    name, dataset = made
    if not has_figure(name):
        pytest.skip("a table, without a figure")
    told, figure = describe(name, dataset).axes[0], figure_of(name, dataset)
    assert told.startswith("Layout: ")
    for panel in figure.panels[:12]:
        assert panel.title.replace("\n", " ") in told
        if isinstance(panel, Legend):
            assert all(f"{entry.label} (".replace("\n", " ") in told for entry in panel.entries)
    if len(figure.panels) > 1:
        assert f"Layout: {len(figure.panels)} panels " in told
    if len(figure.scales) == 1:
        (scale,) = figure.scales.values()
        assert all(text in told for _, text in scale.ticks())


def test_a_reading_never_stands_alone(made: tuple[str, xr.Dataset]) -> None:
    """What a map reads like is followed by what speaks against it, and by what would decide."""
    name, dataset = made
    if not has_figure(name):
        pytest.skip("a table, without words")
    interpretation = describe(name, dataset).interpretation
    assert bool(interpretation) == (name in READ), name
    if interpretation:
        like, against, decide = interpretation
        assert like.startswith("It reads like this: ") and decide.startswith("To decide: ")
        assert against.startswith(("Against it: ", "Nothing that was measured here speaks against it."))


def test_its_head_columns_have_companions_of_the_same_shape(made: tuple[str, xr.Dataset]) -> None:
    name, dataset = made
    if not {"layer", "head"} <= set(dataset.sizes):
        pytest.skip("says nothing about single heads")
    for column in columns_of({name: dataset}).columns:
        assert column.values.shape == (8, 6) and column.label
        for companion in (column.low, column.high, column.p, column.q, column.baseline):
            assert companion is None or companion.shape == (8, 6)
        if column.low is not None and column.high is not None:
            measured = np.isfinite(column.low) & np.isfinite(column.high)
            assert (column.low[measured] <= column.high[measured]).all()


def test_an_atlas_compared_with_itself_has_not_changed(made: tuple[str, xr.Dataset], tmp_path) -> None:
    name, dataset = made
    if not {"layer", "head"} <= set(dataset.sizes) or not columns_of({name: dataset}).columns:
        pytest.skip("says nothing about single heads")
    atlas = Atlas.create(tmp_path / "atlas")
    atlas.add(name, dataset)
    assert compare(atlas, atlas).changed == 0


def test_names_of_older_versions_are_upgraded(made: tuple[str, xr.Dataset]) -> None:
    """A Dataset under the names of every older version reads as one of today."""
    name, dataset = made
    spec = dataset_spec(name)
    assert spec is not None
    for version, renames in spec.renames.items():
        if version != spec.version - 1:
            continue
        back = {new: old for old, new in renames.variables.items() if new in dataset.variables or new in dataset.dims}
        old = dataset
        for coordinate, labels in renames.labels.items():
            back_labels = {new: before for before, new in labels.items()}
            values = [back_labels.get(str(label), str(label)) for label in old[coordinate].values]
            old = old.assign_coords({coordinate: (old[coordinate].dims, np.array(values, dtype=object))})
        old = old.rename(back)
        origin = Provenance.from_attrs(dataset.attrs)
        parameters = dict(origin.parameters)
        attrs = {renames_back(renames.variables, str(key)): value for key, value in dataset.attrs.items()}
        if "record" in attrs:
            attrs["record"] = json.dumps([renames_back(renames.variables, one) for one in json.loads(attrs["record"])])
        old.attrs = (
            attrs | Provenance(origin.study, version, origin.model, origin.data, parameters, origin.seed).to_attrs()
        )
        again = upgrade(old, spec.schema)
        check(again, spec.schema)
        assert set(again.variables) == set(dataset.variables)
        for coordinate in renames.labels:
            assert again[coordinate].values.tolist() == dataset[coordinate].values.tolist()


def renames_back(renames, name: str) -> str:
    return {new: old for old, new in renames.items()}.get(name, name)


@pytest.mark.parametrize("name", sorted(studies()))
def test_its_cost_is_estimated(name: str) -> None:
    spec = studies()[name]
    assert spec.cost is not None
    cost = spec.cost(read_card(), planned_inputs(StudyInputs(limit=100), reference=True))
    assert cost.examples > 0 and cost.flops > 0 and cost.stored > 0 and cost.unit
