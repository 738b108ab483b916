import json

import numpy as np
import pytest
from synthetic.samples import samples

from headwise.figures import from_payload, save, to_payload
from headwise.studies.present import figure_of


def test_panels_hold_the_datasets_numbers():
    dataset = samples()
    figure = figure_of("samples", dataset)
    assert [panel.key for panel in figure.panels] == ["accuracy", "by_type", "type_auroc"]
    overall, by_type, probes = figure.panels
    assert overall.values == pytest.approx(dataset["accuracy"].values)
    assert overall.low == pytest.approx(dataset["accuracy_low"].values)
    assert overall.guides[0].at == pytest.approx(float(dataset["accuracy"][0]))
    kept = dataset.sel(
        error_type=list("BCDE"), strategy=["greedy", "majority", "probe", "trust"]
    )  # no question is of type A
    assert by_type.values == pytest.approx(kept["type_accuracy"].values.ravel())
    assert by_type.y.labels[0] == "B: consistently correct, 40" and by_type.y.labels[1] == ""
    assert probes.values == pytest.approx(np.array([0.81, 0.64, 0.7]), abs=1e-6)
    assert "Too few questions, of the type or of the rest, to probe for D." in figure.notes[0]


def test_a_dataset_of_the_first_version_is_still_drawn():
    dataset = samples()
    old = dataset.sel(strategy=[name for name in dataset["strategy"].values if name != "trust"])
    old = old.drop_vars([name for name in old.data_vars if str(name).startswith(("within", "fit_"))])
    figure = figure_of("samples", old)
    assert len(figure.panels[0].values) == 5 and "fitted on samples of other questions" in figure.notes[0]
    assert "1,480 answers to 500 questions" in figure_of("samples", dataset).notes[0]


def test_without_types_only_strategies_are_drawn(tmp_path):
    dataset = samples(sizes=(0, 0, 0, 0, 0))
    dataset["type_auroc"][:] = np.nan
    figure = figure_of("samples", dataset)
    assert [panel.key for panel in figure.panels] == ["accuracy"]
    assert save(figure, tmp_path / "figure.svg").stat().st_size > 1000


def test_the_browser_gets_the_same(tmp_path):
    figure = figure_of("samples", samples())
    again = from_payload(json.loads(json.dumps(to_payload(figure))))
    assert again.panels[1].values == pytest.approx(figure.panels[1].values)
    assert save(figure, tmp_path / "figure.png", dpi=50).stat().st_size > 1000
