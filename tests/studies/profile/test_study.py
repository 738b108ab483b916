"""The profile study, on a model whose heads are known by construction (`planted`) and on tiny random ones."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from planted import HEADS, LAYERS, PLANTED, planted_profile_model, tiny_model, tiny_passages

from headwise.core.errors import DataError, HeadwiseError, StudyError
from headwise.corpora import Passage, Passages, delimiter_ids
from headwise.instruments import STATISTICS
from headwise.model import Model, load
from headwise.studies import ProfileOptions, build
from headwise.studies.profile import measure as study
from headwise.studies.profile.heads import MIN_ROLE_SCORE, NAMED, has_role, head_sets

KINDS = ("sink", "previous", "diagonal", "induction", "duplicate")  # planted, and a statistic of the same name
BAR, EVEN = 0.8, 0.95
TEXTS = 12
SMALL = {"profile": ProfileOptions(repeats=3, period=20, shard=4)}


@pytest.fixture(scope="module")
def planted() -> Model:
    return planted_profile_model()


@pytest.fixture(scope="module")
def profile(planted: Model, tmp_path_factory: pytest.TempPathFactory) -> xr.Dataset:
    """The planted model's map with the study's own options."""
    atlas = build(planted, ["profile"], data=tiny_passages(TEXTS), output=tmp_path_factory.mktemp("planted") / "atlas")
    return atlas["profile"]


def found(profile: xr.Dataset, statistic: str) -> list[tuple[int, int]]:
    """The heads that the map says are of this kind: clearly over the bar and over an evenly spread head."""
    one = profile.sel(statistic=statistic)
    return [(int(at), int(head)) for at, head in np.argwhere(((one.value > BAR) & (one.low > one.uniform)).values)]


def test_roles_are_those_whose_interval_is_above_the_bar(profile: xr.Dataset) -> None:
    named = {one.key: one for one in head_sets(profile)}
    for kind in KINDS:
        assert [tuple(one) for one in np.argwhere(has_role(profile, kind))] == [PLANTED[kind]]
        if kind in NAMED:
            assert (named[f"profile.{kind}"].member == has_role(profile, kind)).all()
    layer, head = PLANTED["induction"]
    place = {"statistic": "induction", "layer": layer, "head": head}
    uniform = float(profile["uniform"].loc[place])
    for corrected, expected in ((MIN_ROLE_SCORE - 0.01, 0), (MIN_ROLE_SCORE + 0.01, 1)):
        weaker = profile.copy(deep=True)
        weaker["low"].loc[place] = uniform + corrected * (1 - uniform)
        assert has_role(weaker, "induction").sum() == expected
    without = profile.copy(deep=True)
    without["value"].loc[place] = without["low"].loc[place] = uniform
    assert not has_role(without, "induction").any()  # a model may have none: nobody is named in its place


def of(values: xr.DataArray, kind: str) -> xr.DataArray:
    """What a map holds for the planted head."""
    layer, head = PLANTED[kind]
    return values.isel(layer=layer, head=head)


# ---- what was planted is found --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_exactly_the_planted_head_is_found(profile: xr.Dataset, kind: str) -> None:
    assert found(profile, kind) == [PLANTED[kind]]
    value = profile.value.sel(statistic=kind).values
    assert np.unravel_index(value.argmax(), value.shape) == PLANTED[kind]
    second, best = np.sort(value.ravel())[-2:]
    assert best > 0.99
    assert second < 0.5


def test_exactly_the_planted_uniform_head_is_even(profile: xr.Dataset) -> None:
    entropy = profile.value.sel(statistic="entropy")
    assert [tuple(place) for place in np.argwhere(entropy.values > EVEN)] == [PLANTED["uniform"]]
    layer, head = PLANTED["uniform"]
    assert float(entropy[layer, head]) == pytest.approx(1, abs=1e-4)
    ours = profile.isel(layer=layer, head=head).drop_sel(statistic="output_norm_ratio")
    np.testing.assert_allclose(ours.value, ours.uniform, rtol=1e-4)


def test_sharp_heads_have_no_entropy_and_one_weight(profile: xr.Dataset) -> None:
    for kind in ("sink", "previous", "diagonal"):
        one = of(profile.value, kind)
        assert float(one.sel(statistic="entropy")) < 0.01
        assert float(one.sel(statistic="top1")) > 0.99
        assert float(one.sel(statistic="spread")) < 0.1
    distance = profile.value.sel(statistic="distance")
    assert float(distance[PLANTED["diagonal"]]) == pytest.approx(0, abs=0.01)
    assert float(distance[PLANTED["previous"]]) == pytest.approx(1, abs=0.01)
    assert float(distance[PLANTED["sink"]]) == float(distance.max())


def test_moved_is_what_was_written_over_what_was_read(profile: xr.Dataset) -> None:
    """The previous-token head writes a code of squared norm 32 where the residual stream has 64."""
    moved = profile.value.sel(statistic="output_norm_ratio")
    assert float(moved[PLANTED["previous"]]) == pytest.approx(np.sqrt(32 / 64), abs=0.01)
    assert np.sort(moved.values.ravel())[-2] < 0.1  # all others write a little noise


@pytest.mark.parametrize("period", [3, 5, 37, 159])  # at 2, the token before is the one induction looks at
def test_induction_and_duplicate_are_found_at_any_period(planted: Model, period: int, tmp_path: Path) -> None:
    options = {"profile": ProfileOptions(repeats=4, period=period, seed=period)}
    profile = build(planted, ["profile"], data=tiny_passages(2), output=tmp_path / "atlas", options=options)["profile"]
    for kind in study.ON_REPEATS:
        assert found(profile, kind) == [PLANTED[kind]]
        assert float(of(profile.per_example, kind).sel(statistic=kind).min()) > 0.99


def test_without_the_previous_token_head_there_is_no_induction(planted: Model, tmp_path: Path) -> None:
    """The induction head is half of a circuit: it reads what the previous-token head wrote."""
    crippled = planted_profile_model()
    layer, head = PLANTED["previous"]
    crippled.hf.transformer.h[layer].attn.c_proj.weight.data[head * 64 : (head + 1) * 64] = 0
    profile = build(crippled, ["profile"], data=tiny_passages(2), output=tmp_path / "atlas")["profile"]
    assert found(profile, "induction") == []
    for kind in ("previous", "duplicate", "sink"):
        assert found(profile, kind) == [PLANTED[kind]]


# ---- the map --------------------------------------------------------------------------------------------------------


def test_the_map_has_the_promised_dims_and_coords(profile: xr.Dataset) -> None:
    options = ProfileOptions()
    for name in ("value", "low", "high", "uniform"):
        assert profile[name].dims == ("statistic", "layer", "head")
        assert profile[name].dtype == np.float32
    assert profile.per_example.dims == ("example", "statistic", "layer", "head")
    assert dict(profile.sizes) == {
        "statistic": len(STATISTICS), "layer": LAYERS, "head": HEADS, "example": TEXTS + options.repeats,
    }  # fmt: skip
    assert tuple(profile.statistic.values) == STATISTICS
    assert list(profile["layer"].values) == list(range(LAYERS))
    assert list(profile["head"].values) == list(range(HEADS))
    items = tiny_passages(TEXTS).items
    assert list(profile.example.values[:TEXTS]) == [item.id for item in items]
    assert list(profile.register.values) == [item.register for item in items] + ["repeats"] * options.repeats
    for name in ("label", "unit", "definition"):
        assert profile[name].dims == ("statistic",)
    assert all(profile.label.values)
    assert all(profile.definition.values)
    assert json.loads(profile.attrs["record"]) == ["value"]


def test_repeats_give_induction_and_duplicate_and_texts_give_the_rest(profile: xr.Dataset) -> None:
    on_repeats = profile.register == "repeats"
    for statistic in STATISTICS:
        known = profile.per_example.sel(statistic=statistic).notnull()
        assert bool((known == (on_repeats == (statistic in study.ON_REPEATS))).all()), statistic


def test_intervals_are_those_of_the_mean(profile: xr.Dataset) -> None:
    assert bool(((profile.low <= profile.value) & (profile.value <= profile.high)).all())
    sink = profile.per_example.sel(statistic="sink").isel(layer=0, head=0).values[:TEXTS]
    one = profile.sel(statistic="sink").isel(layer=0, head=0)
    assert float(one.value) == pytest.approx(sink.mean(), rel=1e-5)
    half = 2.200985 * sink.std(ddof=1) / np.sqrt(TEXTS)  # t of 11 degrees of freedom at 0.975
    assert float(one.high - one.low) == pytest.approx(2 * half, rel=1e-4)


def test_uniform_is_the_closed_form(planted: Model, profile: xr.Dataset) -> None:
    """Query i sees i + 1 keys, and an evenly spread head gives each 1 / (i + 1)."""
    delimiters = delimiter_ids(planted.tokenizer)
    texts = []
    for item in tiny_passages(TEXTS).items:
        ids = planted.ids(item.text)
        sees = np.arange(2, len(ids) + 1)
        marked = np.cumsum([token in delimiters for token in ids])[1:]
        each = np.mean(1 / sees)
        texts.append(
            {
                "entropy": 1.0, "sink": each, "diagonal": each, "previous": each, "top1": each,
                "distance": np.mean((sees - 1) / 2), "spread": np.mean(np.sqrt((sees**2 - 1) / 12)),
                "delimiter": np.mean(marked / sees),
            }
        )  # fmt: skip
    expected = {name: np.mean([text[name] for text in texts]) for name in texts[0]}
    period = ProfileOptions().period
    expected |= dict.fromkeys(study.ON_REPEATS, np.mean(1 / np.arange(period + 2, 2 * period + 2)))
    for name, value in expected.items():
        np.testing.assert_allclose(profile.uniform.sel(statistic=name), value, rtol=1e-4, err_msg=name)
    assert bool(profile.uniform.sel(statistic="output_norm_ratio").isnull().all())


def test_the_map_says_where_it_comes_from(planted: Model, passages: Passages, tmp_path: Path) -> None:
    options = ProfileOptions(repeats=2, period=10, seed=7)
    atlas = build(planted, ["profile"], data=passages, output=tmp_path / "atlas", options={"profile": options})
    origin = atlas.provenance("profile")
    assert origin.model == json.loads(json.dumps(planted.identity()))
    assert origin.data == {
        "name": passages.name,
        "size": len(passages),
        "given": len(passages),
        "digest": passages.digest,
    }
    assert (origin.parameters["period"], origin.seed) == (10, 7)


# ---- sameness -------------------------------------------------------------------------------------------------------


def test_another_seed_shows_other_repeats_and_the_same_texts(tiny: Model, passages: Passages, tmp_path: Path) -> None:
    maps = []
    for seed in (0, 1):
        options = {"profile": ProfileOptions(repeats=3, period=20, seed=seed)}
        maps.append(
            build(tiny, ["profile"], data=passages, output=tmp_path / str(seed), options=options)["profile"].value
        )
    for statistic in STATISTICS:
        equal = np.array_equal(*(one.sel(statistic=statistic) for one in maps))
        assert equal == (statistic not in study.ON_REPEATS), statistic


def test_batches_change_nothing_that_matters(planted: Model, tmp_path: Path) -> None:
    maps = []
    for batch_tokens in (64, 4096):
        options = {"profile": ProfileOptions(repeats=4, batch_tokens=batch_tokens)}
        atlas = build(
            planted, ["profile"], data=tiny_passages(6), output=tmp_path / f"atlas{batch_tokens}", options=options
        )
        maps.append(atlas["profile"])
    for name in ("value", "low", "high", "uniform", "per_example"):
        np.testing.assert_allclose(maps[0][name], maps[1][name], rtol=1e-4, atol=1e-4, err_msg=name)
    for kind in KINDS:
        assert found(maps[0], kind) == found(maps[1], kind) == [PLANTED[kind]]


def test_a_long_text_is_cut_to_what_the_model_takes(tiny: Model) -> None:
    passages = tiny_passages(2, tokens=(400, 500))
    short = study._examples(tiny, passages, ProfileOptions(max_tokens=30, repeats=2))
    assert [len(example.ids) for example in short] == [30, 30, 1 + 2 * 14, 1 + 2 * 14]
    whole = study._examples(tiny, passages, ProfileOptions(repeats=2))
    assert [len(example.ids) for example in whole] == [320, 320, 1 + 2 * 128, 1 + 2 * 128]


def test_repeats_are_ordinary_tokens_after_the_first_one(tiny: Model, passages: Passages) -> None:
    examples = study._examples(tiny, passages, ProfileOptions(repeats=5, period=100))
    for example in examples[len(passages) :]:
        first, *rest = example.ids
        assert first == tiny.tokenizer.bos_token_id
        assert rest[:100] == rest[100:]
        assert not set(rest) & set(tiny.tokenizer.all_special_ids)


def test_repeats_may_be_drawn_from_the_tokens_of_the_texts(tiny: Model) -> None:
    few = tuple(
        Passage(f"p{one}", "river house door light night rain garden letter winter stone", "prose") for one in range(2)
    )
    examples = study._examples(tiny, Passages("few", few), ProfileOptions(repeats=5, period=8, repeat="texts"))
    known = set(examples[0].ids)
    repeated = {token for one in examples if one.register == "repeats" for token in one.ids}
    assert repeated <= known and len(repeated) > 8
    with pytest.raises(DataError, match="lower the period"):
        study._examples(tiny, Passages("few", few), ProfileOptions(repeats=5, period=20, repeat="texts"))


@pytest.mark.parametrize("family", ["gpt2", "qwen3", "gemma2", "gpt_neox"])
def test_other_families_have_a_map_without_holes(family: str, passages: Passages, tmp_path: Path) -> None:
    model = load(*tiny_model(family, layers=2, heads=2, kv_heads=2))
    profile = build(model, ["profile"], data=passages, output=tmp_path / "atlas", options=SMALL)["profile"]
    assert bool(profile[["value", "low", "high"]].to_dataarray().notnull().all())


# ---- refusals -------------------------------------------------------------------------------------------------------


def test_fewer_than_two_texts_are_refused(tiny: Model, passages: Passages, tmp_path: Path) -> None:
    short = Passages("mine", (passages.items[0], Passage("short", "the river")))
    with pytest.raises(DataError, match=r"mine has one text of at least 8 tokens.*need two.*give more or longer texts"):
        build(tiny, ["profile"], data=short, output=tmp_path / "atlas")


def test_an_empty_file_is_refused(tiny: Model, tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_text("\n \n\n")
    with pytest.raises(DataError, match=r"empty\.txt contains no text"):
        build(tiny, ["profile"], data=tmp_path / "empty.txt", output=tmp_path / "atlas")
    assert not (tmp_path / "atlas").exists()


def test_texts_that_call_themselves_repeats_are_refused(tiny: Model, passages: Passages, tmp_path: Path) -> None:
    mine = Passages("mine", (*passages.items, Passage("x", passages.items[0].text, "repeats")))
    with pytest.raises(DataError, match=r"'x'.*register 'repeats'.*another"):
        build(tiny, ["profile"], data=mine, output=tmp_path / "atlas")


def test_attention_that_overflows_is_refused_by_layer(passages: Passages, tmp_path: Path) -> None:
    hf, tokenizer = tiny_model(layers=3)
    hf.model.layers[1].self_attn.q_proj.weight.data *= 1e38
    with pytest.raises(StudyError, match=r"layer 1 gives attention that is not a number.*dtype=float32"):
        build(load(hf, tokenizer), ["profile"], data=passages, output=tmp_path / "atlas", options=SMALL)


@pytest.mark.parametrize(
    ("option", "least"), [("max_tokens", 8), ("repeats", 2), ("period", 3), ("batch_tokens", 1), ("shard", 1)]
)
def test_options_that_cannot_be_measured_are_refused(option: str, least: int) -> None:
    ProfileOptions(**{option: least})
    with pytest.raises(StudyError, match=f"profile.{option} must be at least {least}, not {least - 1}"):
        ProfileOptions(**{option: least - 1})


def test_a_model_without_a_tokenizer_is_refused(passages: Passages, tmp_path: Path) -> None:
    with pytest.raises(HeadwiseError, match="cannot encode text, because it was given without a tokenizer"):
        build(load(tiny_model(layers=1)[0]), ["profile"], data=passages, output=tmp_path / "atlas")
