"""The notebooks, run on the real default model with small settings: not only without errors, but with what they say.

Each runs in a kernel of its own. What is checked is what its text claims and small settings can show; the numbers on the
site come from the full run, whose outputs are in the files (test_kept.py).
"""

from __future__ import annotations

import os
from pathlib import Path
from statistics import median

import pytest

pytest.importorskip("nbclient", reason="nbclient is not installed (pip install nbclient ipykernel)")
pytest.importorskip("ipykernel", reason="ipykernel is not installed (pip install nbclient ipykernel)")

from notebooks.running import run

from headwise.core.errors import ModelError
from headwise.model import open_stored

pytestmark = [
    pytest.mark.real,
    pytest.mark.xdist_group("default model"),
    pytest.mark.filterwarnings("ignore"),  # of the kernel's own libraries
]
SOURCE = str(Path(__file__).parents[2] / "src")


@pytest.fixture(scope="module", autouse=True)
def model_is_here():
    try:
        open_stored()  # found, not loaded: each kernel loads its own
    except ModelError as error:
        pytest.skip(f"the default model is not here: {error}")


@pytest.fixture(autouse=True)
def quiet_kernel(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([SOURCE, os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


def test_a_first_look(tmp_path):
    found = run(
        "first-look",
        tmp_path,
        "PASSAGES, TOKENS, REPEATS, PROMPTS = 6, 32, 2, 6",
        studies="atlas.studies",
        best="name",
        induction="float(heads['profile.induction'].max())",
        even="float(induction.uniform.max())",
        shown="atlas['patterns'].sizes['token'], len(model.ids(text))",
    )
    assert found["studies"] == ["patterns", "profile"] and (tmp_path / "first-look" / "zarr.json").exists()
    assert found["best"] == "L18H6" and found["induction"] > 0.7 > 10 * found["even"]
    assert found["shown"][0] == found["shown"][1]


def test_a_hallucination_detector(tmp_path):
    found = run(
        "hallucination-detector",
        tmp_path,
        "KNOWN, NEW, SETTINGS = 60, 12, {'spectral': SpectralOptions(k=5, shuffles=200)}",
        both="len(known), len(new), len(set(known.index) & set(new.index))",
        rows="table.index.tolist()",
        inside="bool(((table.auroc_low <= table.auroc) & (table.auroc <= table.auroc_high)).all())",
        scored="new.p_wrong.between(0, 1).all() and new.p_wrong.nunique() > 6",
        held_out="held_out.loc['detector'].tolist()",
        own="scorer.score('What is the capital of Norway?').probability",
        trap="trap.probability",
    )
    assert found["both"] == [60, 12, 0]
    assert {"LapEigvals", "Log-probability, min", "Length"} <= set(found["rows"]) and found["inside"]
    assert found["scored"] and found["held_out"][1] <= found["held_out"][0] <= found["held_out"][2]
    assert found["trap"] > found["own"]


def test_does_this_head_matter(tmp_path):
    found = run(
        "does-this-head-matter",
        tmp_path,
        "SEQUENCES, PERIOD, OTHERS, DRAWS, COUNTRIES = 2, 16, 7, 3, 3",
        suspect="suspect",
        rise="rise[suspect]",
        others="rise[others].tolist()",
        several="several.values.tolist()",
        plain="plain",
        steered="steered.values.tolist()",
        off="off['effect']['kl']",
        controls="[control['kl'] for control in off['controls']]",
    )
    assert found["suspect"] == "L18H6" and found["rise"] > 1 > 5 * median(found["others"])
    for own, random_median, _ in found["several"]:
        assert own > 2 * random_median
    assert abs(found["plain"]) < 0.2 < found["several"][-1][0]
    for as_it_is, own, other in found["steered"]:
        assert as_it_is < 0 < own and other < 0
    assert found["off"] > max(found["controls"])


def test_comparing_two_models(tmp_path):
    found = run(
        "comparing-two-models",
        tmp_path,
        "PASSAGES, TOKENS, REPEATS = 16, 32, 2",
        changed="found.changed / found.tested",
        again="again.changed / again.tested",
        entropy="columns.loc['Entropy', 'mean change']",
        order="columns['order of heads kept (rank correlation)'].median()",
        rows="len(found.heads), name",
        conditions="both['patterns'].sizes['condition']",
    )
    assert found["changed"] > 0.3 and found["again"] < 0.02
    assert found["entropy"] < 0 and found["order"] > 0.7
    assert found["rows"][0] == 270 and found["conditions"] == 2


def test_long_context(tmp_path):
    found = run(
        "long-context",
        tmp_path,
        "TOKENS, LENGTHS = 320, (64, 128, 320)",
        maps="maps",
        tokens="len(text)",
        distance="lengths.loc['mean distance, median head'].tolist()",
        memory="costs['GB at the peak'].tolist()",
        key="text[key], answer",
        whole="whole",
        without="without",
        control="control",
        far="far.sink.max()",
    )
    assert found["tokens"] == 320 and found["maps"] == pytest.approx(270 * 320**2 * 4 / 1e9)
    assert found["distance"] == sorted(found["distance"])
    assert found["memory"][1] < found["memory"][0] + 0.3
    assert found["key"][0] == found["key"][1] and found["far"] < 0.1
    assert found["whole"] > -0.7 and found["without"] < min(found["control"]) - 0.4
