"""The patterns study: on a model whose heads are known by construction, on tiny random ones, and on pairs of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import xarray as xr
from planted import PLANTED, planted_profile_model, tiny_model, tiny_passages, tiny_tokenizer

from headwise.atlas import Atlas
from headwise.core.errors import DataError, StudyError
from headwise.corpora import Passages
from headwise.model import Model, load
from headwise.model.gate import put_gate
from headwise.studies import build
from headwise.studies.patterns.spec import PatternsOptions
from headwise.studies.registry import dataset_spec

SENTENCE = "the old house had the old door"
FEW = PatternsOptions(prompts=8, tokens=32, prompt=SENTENCE)

BETWEEN = {  # variables of two models
    name: one.dims
    for name, one in dataset_spec("patterns").schema.expanded().items()
    if not one.required and one.dims is not None
}


@pytest.fixture
def texts() -> Passages:
    return tiny_passages(8, tokens=(40, 60))


@pytest.fixture
def run(texts: Passages, tmp_path: Path) -> Callable[..., xr.Dataset]:
    """``run(model, against)``: the study, in a folder of its own."""

    def measured(model: Model, against: Any = "none", options: PatternsOptions = FEW, data: Any = None) -> xr.Dataset:
        place = tmp_path / f"atlas-{len(list(tmp_path.iterdir()))}"
        chosen = {"patterns": options}
        return build(model, ["patterns"], data=data or texts, reference=against, output=place, options=chosen)[
            "patterns"
        ]

    return measured


def at(values: xr.DataArray, kind: str) -> float:
    layer, head = PLANTED[kind]
    return float(values.isel(layer=layer, head=head))


# ---- one model ------------------------------------------------------------------------------------------------------


def test_planted_heads_have_exactly_their_numbers(run: Callable[..., xr.Dataset]) -> None:
    found = run(planted_profile_model())
    value = found["value"].isel(condition=0)
    diagonal, first = value.sel(statistic="diagonal"), value.sel(statistic="first")
    over_half = {tuple(place) for place in np.argwhere((diagonal > 0.5).values).tolist()}
    assert over_half >= {PLANTED["previous"], PLANTED["diagonal"]}
    assert at(diagonal, "previous") == pytest.approx(1, abs=1e-3)
    assert at(diagonal, "diagonal") == pytest.approx(1, abs=1e-3)
    assert at(diagonal, "sink") == pytest.approx(
        1 / 31, abs=1e-3
    )  # token 1 looks at the token before, which is the first
    assert [tuple(place) for place in np.argwhere((first > 0.9).values).tolist()] == [PLANTED["sink"]]
    for kind in ("previous", "diagonal", "sink"):
        assert at(value.sel(statistic="peak"), kind) > 0.999
        assert at(value.sel(statistic="entropy"), kind) < 0.01
        assert at(value.sel(statistic="off_diagonal"), kind) == 0
        assert at(value.sel(statistic="active"), kind) == pytest.approx(
            31 / (32 * 33 / 2 - 1), rel=1e-4
        )  # one edge a row
    assert at(value.sel(statistic="entropy"), "uniform") == pytest.approx(1, abs=1e-4)
    assert (value.sel(statistic=["open", "mass"]) > 0.999).all()


def test_the_shown_maps_are_whole_and_the_mask_is_nan(run: Callable[..., xr.Dataset]) -> None:
    found = run(planted_profile_model())
    shown = found["shown"].isel(condition=0)
    assert found["token_text"].values.tolist() == [
        "<s>",
        *SENTENCE.split(),
    ]  # twice "the", twice "old", each its own row
    assert found["query"].values.tolist() == list(range(8))
    layer, head = PLANTED["previous"]
    np.testing.assert_allclose(np.diag(shown[layer, head].values, -1), 1, atol=1e-3)
    assert np.isnan(shown.values[..., 0, 1:]).all() and np.isfinite(shown.values[..., 7, :]).all()
    assert found["average"].shape == (1, 3, 6, 32, 32)
    assert float(found["average"].isel(condition=0)[PLANTED["sink"]][:, 0].min()) > 0.99


def test_long_prompts_are_kept_pooled(run: Callable[..., xr.Dataset]) -> None:
    found = run(
        planted_profile_model(), options=PatternsOptions(prompts=6, tokens=32, prompt=" ".join([SENTENCE] * 14))
    )
    assert found["shown"].shape[-2:] == (64, 64) and found.sizes["token"] == 99
    assert found["query"].values.tolist() == [k * 99 // 64 for k in range(64)]
    assert float(found["shown"].isel(condition=0)[PLANTED["diagonal"]].values.diagonal().min()) > 0.99


def test_batches_and_shards_do_not_matter(run: Callable[..., xr.Dataset]) -> None:
    model = load(*tiny_model(layers=2))
    other = load(*tiny_model(layers=2, seed=1))
    one = run(model, other)
    again = run(model, other, PatternsOptions(**{**vars(FEW), "batch_tokens": 32, "shard": 3}))
    assert one["example"].values.tolist() == again["example"].values.tolist()
    for name in one.data_vars:
        np.testing.assert_allclose(
            one[name], again[name], atol=2e-3 if one[name].dtype == np.float16 else 2e-5, err_msg=name
        )


def test_intervals_are_students_over_prompts(run: Callable[..., xr.Dataset]) -> None:
    from scipy import stats

    found = run(load(*tiny_model(layers=1)))
    each = found["per_example"].values[0, :, 2, 0, 0].astype(float)
    low, high = stats.t.interval(0.95, len(each) - 1, each.mean(), stats.sem(each))
    here = found.isel(condition=0, statistic=2, layer=0, head=0)
    assert [float(here["value"]), float(here["low"]), float(here["high"])] == pytest.approx(
        [each.mean(), low, high], abs=1e-5
    )
    assert not set(BETWEEN) & set(found.data_vars)


# ---- two models -----------------------------------------------------------------------------------------------------


def test_a_model_against_itself_has_not_changed(run: Callable[..., xr.Dataset]) -> None:
    found = run(planted_profile_model(), planted_profile_model())
    assert (found["change"].fillna(0) == 0).all() and (found["q"].fillna(1) == 1).all()
    assert (found["similarity"] == 1).all() and (found["dropped"].fillna(0) == 0).all()
    assert float(found["whole_kl"]) < 1e-6
    assert (found["whole_p"] == 1).all()
    assert set(BETWEEN) <= set(found.data_vars)
    for name, dims in BETWEEN.items():
        assert found[name].dims == dims, name


def test_exactly_the_heads_that_were_sharpened_are_found(run: Callable[..., xr.Dataset]) -> None:
    hf, tokenizer = tiny_model(layers=3)
    sharp, _ = tiny_model(layers=3)
    for layer, head in ((2, 1), (2, 3)):  # in the last layer, so that nothing follows
        sharp.model.layers[layer].self_attn.q_proj.weight.data[16 * head : 16 * (head + 1)] *= 4
    found = run(load(hf, tokenizer), load(sharp, tokenizer))
    changed = {tuple(place) for place in np.argwhere((found["q"].sel(statistic="peak") < 0.05).values).tolist()}
    assert changed == {(2, 1), (2, 3)}
    assert (found["change"].sel(statistic="peak").values[2, [1, 3]] > 0.05).all()
    assert (found["change"].sel(statistic="entropy").values[2, [1, 3]] < -0.05).all()
    order = np.argsort(found["similarity"].values.ravel())[:2]
    assert {divmod(int(place), 4) for place in order} == {(2, 1), (2, 3)}
    assert (found["dropped"].values[:2] < 1e-6).all() and (found["dropped"].values[2, [1, 3]] > 0.2).all()


def test_a_gated_model_drops_edges_and_mass(run: Callable[..., xr.Dataset]) -> None:
    (hf, tokenizer), (gated, _) = tiny_model(layers=2), tiny_model(layers=2)
    put_gate(gated, 0.0)
    found = run(load(hf, tokenizer), load(gated, tokenizer))
    assert found["name"].values.tolist()[1].startswith("Sparse ")
    before, after = (found["whole"].isel(condition=place).sel(feature=["open", "mass"]).values for place in (0, 1))
    assert (before > 0.999).all() and (after < 0.9).all()
    first = found["dropped"].values[0]  # in the first layer the weights themselves are the dense ones
    assert (first > 0).all() and (found["gained"].values[0] < 1e-6).all()


def test_heads_switched_off_change_later_layers_only(run: Callable[..., xr.Dataset]) -> None:
    options = PatternsOptions(**{**vars(FEW), "heads_off": "L0H1, L0H2"})
    found = run(load(*tiny_model(layers=2)), None, options)
    assert (found["similarity"].values[0] == 1).all() and (found["similarity"].values[1] < 1).all()
    assert str(found["name"].values[1]).endswith("without L0H1, L0H2")
    assert float(found["whole_kl"]) > 0


def test_loss_and_divergence_are_the_plain_ones(run: Callable[..., xr.Dataset], texts: Passages) -> None:
    first, second = load(*tiny_model(layers=1)), load(*tiny_model(layers=1, seed=3))
    found = run(first, second)
    texts_by_id = {item.id: item.text for item in texts.items}
    for place, name in enumerate(found["example"].values):
        ids = torch.tensor([first.ids(texts_by_id[name])[:32]])
        logs = [model(input_ids=ids).logits[0, :-1].double().log_softmax(-1) for model in (first, second)]
        losses = [-float(log[range(31), ids[0, 1:]].mean()) for log in logs]
        assert found["loss"].values[:, place] == pytest.approx(losses, abs=1e-5)
        kl = float((logs[0].exp() * (logs[0] - logs[1])).sum(-1).mean())
        assert float(found["kl_of_prompt"][place]) == pytest.approx(kl, abs=1e-5)


def test_the_second_model_is_part_of_the_origin(texts: Passages, tmp_path: Path) -> None:
    model, other = load(*tiny_model(layers=1)), load(*tiny_model(layers=1, seed=3))
    atlas = build(model, ["patterns"], data=texts, reference=other, output=tmp_path / "a", options={"patterns": FEW})
    origin = atlas.provenance("patterns")
    assert origin.model["digest"] == model.identity()["digest"]
    assert origin.parameters["reference"]["digest"] == other.identity()["digest"]
    with pytest.raises(Exception, match="measured with other settings or data"):
        build(model, ["patterns"], data=texts, reference="none", output=tmp_path / "a", options={"patterns": FEW})
    columns = Atlas.open(tmp_path / "a").heads().columns
    assert {"patterns.model.peak", "patterns.reference.peak", "patterns.peak.q", "patterns.similarity"} <= set(columns)


# ---- prompts, and what is refused -----------------------------------------------------------------------------------


def test_too_few_texts_are_cut_into_several_prompts(run: Callable[..., xr.Dataset]) -> None:
    options = PatternsOptions(prompts=12, prompt=SENTENCE)
    found = run(load(*tiny_model(layers=1)), options=options, data=tiny_passages(4, tokens=(70, 100)))
    assert found.sizes["example"] == 12
    assert found.attrs["provenance"].count('"texts":4') == 1
    assert found["example"].values[4].endswith(":2")


def test_texts_that_are_too_short_are_refused(run: Callable[..., xr.Dataset]) -> None:
    with pytest.raises(DataError, match=r"tiny passages gives 0 prompts of 16 tokens.*at least 6.*longer texts"):
        run(load(*tiny_model(layers=1)), options=PatternsOptions(), data=tiny_passages(8, tokens=(5, 9)))


def test_models_of_another_shape_are_refused(run: Callable[..., xr.Dataset]) -> None:
    with pytest.raises(StudyError, match=r"2 layers of 4 heads and .* has 3 layers of 4 heads: .*same shape"):
        run(load(*tiny_model(layers=2)), load(*tiny_model(layers=3)))


def test_other_tokenizers_are_refused_at_the_first_token_that_differs(run: Callable[..., xr.Dataset]) -> None:
    hf, tokenizer = tiny_model(layers=2)
    other, _ = tiny_model(layers=2)
    with pytest.raises(
        DataError, match=r"different tokenizers: token 0 of the prompt to be shown is '<s>' \(id 1\) for the"
    ):
        run(load(hf, tokenizer), load(other, tiny_tokenizer(first=False)))


def test_prompts_longer_than_the_context_are_refused(run: Callable[..., xr.Dataset]) -> None:
    model = load(*tiny_model(layers=1))
    with pytest.raises(StudyError, match=r"prompts of 400 tokens .* is 320; give at most that"):
        run(model, options=PatternsOptions(tokens=400))
    with pytest.raises(DataError, match=r"longer than the context of .* \(320 tokens\)"):
        run(model, options=PatternsOptions(prompt="the " * 400))
    with pytest.raises(DataError, match="one token, and a map of one token shows nothing"):
        run(load(tiny_model(layers=1)[0], tiny_tokenizer(first=False)), options=PatternsOptions(prompt="the"))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"prompts": 5}, "prompts must be at least 6, not 5"),
        ({"tokens": 8}, "tokens must be at least 16, not 8"),
        ({"active": 0.0}, "active must be between 0 and 1, not 0.0"),
        ({"peak": 1.5}, "peak must be between 0 and 1, not 1.5"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(StudyError, match=said):
        PatternsOptions(**options)


def test_heads_off_and_another_model_are_not_mixed(run: Callable[..., xr.Dataset]) -> None:
    model = load(*tiny_model(layers=1))
    with pytest.raises(StudyError, match="not both at once"):
        run(model, load(*tiny_model(layers=1, seed=1)), PatternsOptions(heads_off="L0H0"))
    with pytest.raises(DataError, match="there is no head L9H9"):
        run(model, None, PatternsOptions(heads_off="L9H9"))
