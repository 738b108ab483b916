"""Two atlases: planted changes are found, noise is not, different data and shapes are refused with the reason."""

import json

import numpy as np
import pytest
import xarray as xr
from scipy.stats import binomtest, ttest_1samp
from synthetic.given import profile, scores
from synthetic.relations import relations_dataset
from typer.testing import CliRunner

from headwise.analysis import compare, comparison_figure, describe_comparison
from headwise.analysis.changes import change_error, changes
from headwise.analysis.columns import columns_of
from headwise.atlas import Atlas
from headwise.cli.main import app
from headwise.core.errors import AtlasError, StudyError
from headwise.figures import from_payload, to_payload

LAYERS, HEADS = 10, 6


def levels(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).uniform(0.1, 0.8, (2, LAYERS, HEADS))


def with_model(dataset: xr.Dataset, name: str, **parameters: object) -> xr.Dataset:
    origin = json.loads(dataset.attrs["provenance"])
    origin["model"] |= {"id": f"me/{name}", "digest": name}
    origin["parameters"] |= parameters
    return dataset.assign_attrs(provenance=json.dumps(origin))


def stored(path, name, datasets, **parameters) -> Atlas:
    atlas = Atlas.create(path / name)
    for study, dataset in datasets.items():
        atlas.add(study, with_model(dataset, name, **parameters))
    return atlas


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """B is A measured anew, but L4H2 became a sink and L7H5 lost its induction; relations: L3H1 forgets its knowledge."""
    folder = tmp_path_factory.mktemp("pair")
    one = levels()
    other = one + np.random.default_rng(5).normal(0, 0.003, one.shape)
    one[1, 7, 5], other[1, 7, 5] = 0.9, 0.1
    one[0, 4, 2], other[0, 4, 2] = 0.15, 0.85
    before, after = relations_dataset(LAYERS, HEADS), relations_dataset(LAYERS, HEADS)
    own = np.isin(after["relation_of"].values, ["country-capital", "product-company"])
    after["mapped"].values[own, 3, 1] = False
    for relation in ("country-capital", "product-company"):
        after["score"].loc[{"relation": relation, "layer": 3, "head": 1}] = 0.0
    a = stored(folder, "dense", {"profile": profile(one, half=0.01, seed=1), "relations": before})
    b = stored(folder, "sparse", {"profile": profile(other, half=0.01, seed=2), "relations": after})
    return a, b


@pytest.fixture(scope="module")
def found(pair):
    return compare(*pair)


def test_planted_changes_are_found_and_noise_is_not(found):
    columns = {column.name: column for column in found.columns}
    assert np.argwhere(columns["profile.sink"].q < 0.05).tolist() == [[4, 2]]
    assert np.argwhere(columns["profile.induction"].q < 0.05).tolist() == [[7, 5]]
    assert columns["profile.sink"].beyond >= 1 and columns["profile.sink"].changed == 1
    np.testing.assert_allclose(columns["profile.sink"].change[4, 2], 0.7, atol=1e-6)
    assert set(found.heads.index[:3]) == {"L4H2", "L7H5", "L3H1"}
    assert "profile.sink 0.15 → 0.85" in found.heads.loc["L4H2", "columns"]
    assert found.heads.loc["L4H2", "times"] > 5
    unmoved = found.heads.drop(["L4H2", "L7H5", "L3H1"])
    assert (unmoved["changed"] == 0).all() and unmoved["times"].median() < 2


def test_a_measured_anew_model_changes_as_much_as_its_noise(tmp_path):
    """What a re-run gives is what `noise` promises: the mean ratio over heads is 1."""
    one, rng = levels(), np.random.default_rng(3)
    sides = [one + rng.normal(0, 0.01 / 1.96, one.shape) for _ in range(2)]
    other = scores(one[0], "mine", half=0.02)
    other["score"] = other["score"] + rng.normal(0, np.sqrt(2) * 0.02 / 1.96, one[0].shape)
    shift = other["score"] - one[0]
    other["score_low"], other["score_high"] = other["score_low"] + shift, other["score_high"] + shift
    a = stored(tmp_path, "a", {"profile": profile(sides[0], half=0.01), "mine": scores(one[0], "mine", half=0.02)})
    b = stored(tmp_path, "b", {"profile": profile(sides[1], half=0.01, seed=9), "mine": other})
    found = compare(a, b)
    assert 0.8 < found.heads["times"].mean() < 1.25
    assert sum(column.changed for column in found.columns) <= 1


def test_paired_examples_are_tested_as_pairs(pair, found):
    one, other = (atlas["profile"].sel(statistic="sink")["per_example"].values for atlas in pair)
    column = next(column for column in found.columns if column.name == "profile.sink")
    assert column.test == "paired over 20 texts"
    expected = ttest_1samp(other - one, 0).pvalue
    order = np.argsort(expected, axis=None)
    assert (np.diff(column.q.ravel()[order]) > -1e-9).all()  # q keeps the order of p
    np.testing.assert_allclose(column.noise, (other - one).std(0, ddof=1) / np.sqrt(20), rtol=1e-4)


def test_pairs_of_relations_are_tested_by_signs():
    before, after = relations_dataset(LAYERS, HEADS), relations_dataset(LAYERS, HEADS, seed=1)
    for one in (before, after):
        one["example"] = np.arange(one.sizes["example"]).astype(str)
    found = changes(
        columns_of({"relations": before}), columns_of({"relations": after}), {"relations": before}, {"relations": after}
    )
    name = "relations.country_capital.score"
    own = before["relation_of"].values == "country-capital"
    hit, now = (one["mapped"].values[own, 3, 1] for one in (before, after))
    gained, lost = int((~hit & now).sum()), int((hit & ~now).sum())
    sides = [next(c for c in columns_of({"relations": one}).columns if c.name == name) for one in (before, after)]
    p = change_error(*sides, before, after).p
    assert p[3, 1] == pytest.approx(binomtest(gained, gained + lost).pvalue if gained + lost else 1.0)
    np.testing.assert_allclose(found["change"].sel(column=name)[3, 1], (gained - lost) / own.sum(), atol=1e-6)


def test_intervals_where_nothing_is_paired():
    one, other = (
        scores(np.full((2, 2), 0.5), "mine", half=0.1),
        scores(np.array([[0.5, 0.6], [0.8, 0.5]]), "mine", half=0.1),
    )
    found = changes(columns_of({"mine": one}), columns_of({"mine": other}), {"mine": one}, {"mine": other})
    column = found.sel(column="mine.score")
    assert column.test == "from both intervals"
    np.testing.assert_allclose(column.noise, np.hypot(0.1, 0.1) / 1.959964)
    assert column.beyond == 1 and column.q[1, 0] < 0.001 and column.q[0, 0] == 1


def test_without_intervals_a_change_is_shown_and_not_tested():
    one, other = scores(np.zeros((2, 2)), "mine"), scores(np.ones((2, 2)), "mine")
    found = changes(columns_of({"mine": one}), columns_of({"mine": other}), {"mine": one}, {"mine": other})
    column = found.sel(column="mine.score")
    assert column.tested == 0 and column.test == "" and column.mean_change == 1


def test_different_data_is_refused_unless_asked_for(tmp_path):
    other = profile(levels())
    other.attrs["provenance"] = other.attrs["provenance"].replace("77ab2c0d5511", "000000000000")
    mine = scores(np.ones((LAYERS, HEADS)), "mine")
    a = stored(tmp_path, "a", {"profile": profile(levels()), "mine": mine})
    b = stored(tmp_path, "b", {"profile": other, "mine": mine})
    found = compare(a, b)
    assert {match.study: match.status for match in found.studies} == {"profile": "refused", "mine": "compared"}
    assert not any(column.study == "profile" for column in found.columns)
    assert "different data" in describe_comparison(found).text()
    allowed = compare(a, b, different_data=True)
    assert any(column.study == "profile" for column in allowed.columns) and any(
        "different data" in w for w in allowed.warnings
    )
    with pytest.warns(DeprecationWarning, match=r"compare\(different_data=...\)"):
        assert compare(a, b, unlike=True).warnings == allowed.warnings
    with pytest.raises(AtlasError, match=r"Nothing can be compared.*profile: different data.*--different-data"):
        compare(a, b, studies=["profile"])


def test_different_options_are_a_warning(tmp_path):
    a = stored(tmp_path, "a", {"profile": profile(levels())}, max_tokens=256)
    b = stored(tmp_path, "b", {"profile": profile(levels())}, max_tokens=512)
    (warning,) = compare(a, b).warnings
    assert "max_tokens 256 against 512" in warning


def test_different_shapes_are_compared_by_depth_only(tmp_path, pair):
    deep = np.random.default_rng(1).uniform(0.1, 0.8, (2, 24, 4))
    deep[0] += np.linspace(0, 1, 24)[:, None]
    b = stored(tmp_path, "deep", {"profile": profile(deep)})
    found = compare(pair[0], b, studies=["profile"])
    assert not found.same_shape and found.columns == () and found.heads.empty
    assert "10 layers of 6 heads and B 24 of 4" in found.reason
    sink = next(one for one in found.depths if one.name == "profile.sink")
    assert len(sink.depth) == 10 and sink.q < 0.05
    last = np.concatenate([deep[0, layer] for layer in range(24) if layer / 23 >= 0.9])
    assert sink.b[-1] == pytest.approx(np.median(last), abs=1e-6)
    text = describe_comparison(found).text()
    assert "so heads do not correspond" in text
    assert sink.q < 1e-4 and "(q below 0.001)" in text and "0.0000" not in text
    json.dumps(to_payload(comparison_figure(found)), allow_nan=False)


def test_heads_correspond_or_do_not(tmp_path, pair, found):
    assert found.correspondence > 0.8 > found.correspondence_by_chance
    stranger = stored(tmp_path, "stranger", {"profile": profile(levels(99))})
    other = compare(pair[0], stranger, studies=["profile"])
    assert abs(other.correspondence) < 0.35
    text = describe_comparison(other).text()
    assert ("is not shown" in text) == (other.correspondence <= other.correspondence_by_chance)


def test_studies_of_one_side_are_named(tmp_path, pair):
    b = stored(tmp_path, "b", {"profile": profile(levels())})
    found = compare(pair[0], b)
    match = next(match for match in found.studies if match.study == "relations")
    assert match.status == "only in A" and "headwise build --studies relations" in match.reason
    with pytest.raises(StudyError, match="Did you mean 'profile'"):
        compare(pair[0], b, studies=["profil"])


def test_every_variable_says_what_it_is(tmp_path, pair, found):
    deep = stored(tmp_path, "deep", {"profile": profile(np.random.default_rng(1).uniform(0.1, 0.8, (2, 24, 4)))})
    by_depth = compare(pair[0], deep, studies=["profile"])
    assert found.dataset["change"].dims == ("column", "layer", "head") and by_depth.dataset["a"].dims == (
        "column",
        "depth",
    )
    assert all(array.long_name for data in (found.dataset, by_depth.dataset) for array in data.data_vars.values())
    with pytest.raises(AtlasError, match="no measured column in common"):
        changes(columns_of({"profile": pair[0]["profile"]}), columns_of({"relations": pair[1]["relations"]}), {}, {})


def test_figure_and_words_say_the_numbers(found):
    figure = comparison_figure(found, columns=["profile.sink", "profile.induction"])
    payload = json.loads(json.dumps(to_payload(figure), allow_nan=False))
    assert to_payload(from_payload(payload)) == to_payload(figure)
    change = figure.panel("change profile.sink")
    assert [(mark.row, mark.column) for mark in change.marks] == [(4, 2)]
    assert "L4H2" in [
        figure.panel("scatter profile.sink").names[place] for place in figure.panel("scatter profile.sink").shown
    ]
    words = describe_comparison(found)
    assert all(number.text in words.text() for number in words.numbers)
    changed = next(number for number in words.numbers if number.source == "changed profile.sink")
    assert changed.value == 1
    with pytest.raises(StudyError, match=r"Did you mean 'profile.sink'"):
        comparison_figure(found, columns="profile.snk")
    json.dumps(found.to_dict(top=3), allow_nan=False)


def test_two_atlases_of_one_model_are_told_apart_by_folder(tmp_path):
    for name in ("first", "second"):
        Atlas.create(tmp_path / name).add("profile", profile(levels()))
    found = compare(Atlas.open(tmp_path / "first"), Atlas.open(tmp_path / "second"))
    assert "(first)" in found.a and "(second)" in found.b
    assert sum(column.changed for column in found.columns) == 0 and (found.heads["change"] == 0).all()


def test_nothing_changed_is_said_first_and_without_a_table(pair):
    """An atlas against itself: no list of heads, no verdict but the one, no NaN anywhere."""
    runner = CliRunner()
    for study in ([], ["--study", "profile"]):
        shown = runner.invoke(app, ["compare", str(pair[0].path), str(pair[0].path), *study])
        assert shown.exit_code == 0
        first = shown.stdout.split("Overview\n")[1]
        assert first.startswith("Nothing changed from") and "nan" not in shown.stdout and "L0H0" not in shown.stdout
    found = compare(pair[0], pair[0])
    assert (
        found.same and found.within_noise and found.heads["times"].notna().all() and (found.heads["times"] == 0).all()
    )
    assert found.correspondence == pytest.approx(1)
    figure = comparison_figure(found)
    assert "nan" not in " ".join(figure.notes) and "Nothing changed" in figure.notes[0]
    assert all(panel.shown == () for panel in figure.panels if panel.key.startswith("scatter"))
    assert "nan" not in found._repr_html_().lower() and "Nothing changed" in found._repr_html_()


def test_noise_is_called_noise_and_names_no_heads(tmp_path):
    one, rng = levels(), np.random.default_rng(3)
    sides = [one + rng.normal(0, 0.001, one.shape) for _ in range(2)]
    a = stored(tmp_path, "a", {"profile": profile(sides[0], half=0.05)})
    b = stored(tmp_path, "b", {"profile": profile(sides[1], half=0.05, seed=9)})
    found = compare(a, b)
    assert found.changed == 0 and found.tested > 0 and found.within_noise and not found.same
    words = describe_comparison(found)
    assert words.short().startswith("Nothing changed beyond noise") and "changed by" not in words.text()
    assert not any(name in words.text() for name in found.heads.index)
    shown = CliRunner().invoke(app, ["compare", str(a.path), str(b.path)])
    assert shown.exit_code == 0 and "L0H0" not in shown.stdout and "all changes are within noise" in shown.stdout


def test_constant_and_unmeasured_columns_have_no_say_in_the_order_of_heads(tmp_path, pair, found):
    """A dense model's share of open edges is 1 everywhere, and a number that no head has is no reason for a NaN."""
    flat, nothing = scores(np.ones((LAYERS, HEADS)), "flat", half=0.1), scores(np.ones((LAYERS, HEADS)), "nothing")
    nothing["score"][:] = np.nan
    more = [
        stored(tmp_path, name, {**{study: atlas[study] for study in atlas.studies}, "flat": flat, "nothing": nothing})
        for name, atlas in zip(("dense", "sparse"), pair, strict=True)
    ]
    again = compare(*more)
    assert again.correspondence == found.correspondence
    assert again.correspondence_by_chance == found.correspondence_by_chance
    text = describe_comparison(again).text()
    assert "nan" not in text and "not known" not in text
    assert "Not measured in both, so not compared: nothing.score" in text and "not tested" not in text
    alone = compare(*more, studies=["flat"])
    assert np.isnan(alone.correspondence) and alone.same
    other = scores(np.full((LAYERS, HEADS), 2.0), "flat", half=0.1)
    moved = compare(more[0], stored(tmp_path, "moved", {"flat": other}), studies=["flat"])
    text = describe_comparison(moved).text()
    assert "Whether heads correspond is unknown" in text and "not shown" not in text and "nan" not in text
    assert "nan" not in " ".join(
        [*(figure := comparison_figure(moved)).notes, figure.panel("scatter flat.score").subtitle]
    )


def test_untested_columns_are_named_and_lists_say_what_they_leave_out(tmp_path):
    """All 60 heads change in seven of eight columns; one more column has no interval."""
    base, rng = np.random.default_rng(0).uniform(0.2, 0.8, (LAYERS, HEADS)), np.random.default_rng(1)
    sides = []
    for shift in (0.0, 0.3):
        own = {f"s{place}": scores(base + shift * (place < 7), f"s{place}", half=0.02) for place in range(8)}
        own["loose"] = scores(base + shift * rng.random(base.shape), "loose")
        sides.append(stored(tmp_path, f"at{shift}", own))
    found = compare(*sides)
    text = describe_comparison(found).text()
    assert "1 more column changed, in as many heads or fewer; 1 column changed in no head (q < 0.05)." in text
    assert "55 more heads changed in at least one column" in text
    assert "No confidence interval, so not tested: loose.score." in text
    assert "columns of" not in text.split("Caveats")[1]
    only = compare(*sides, studies=["s7", "loose"])
    assert not only.within_noise  # what moved was not tested
    assert "by columns without intervals" in describe_comparison(only).short()


def test_folders_are_named_as_far_as_they_differ(tmp_path):
    for name in ("one", "two"):
        Atlas.create(tmp_path / name / "demo" / "atlas").add("profile", profile(levels()))
    found = compare(*(Atlas.open(tmp_path / name / "demo" / "atlas") for name in ("one", "two")))
    assert "(one/demo/atlas)" in found.a and "(two/demo/atlas)" in found.b
