"""The relations study: planted heads and no others are found; loaded, stored and GGUF agree; the plain form agrees."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
import xarray as xr
from families import VOCABULARY, build, tiny
from planted import tiny_model
from planted_relations import ANTONYM, CAPITAL, NAMES, PAIRS, ids, planted_relations, planted_relations_model

import headwise as hw
from headwise.core.errors import DataError, StudyError
from headwise.core.schema import check
from headwise.corpora import Relation, Relations, packaged_relations, read_relations
from headwise.engines import split_shards
from headwise.model import load, open_stored
from headwise.seam import HeadWeights
from headwise.studies.inputs import StudyInputs
from headwise.studies.registry import dataset_spec
from headwise.studies.relations import measure as relations
from headwise.studies.relations.finalize import TokenPairs
from headwise.studies.relations.measure import RelationReader
from headwise.studies.relations.spec import RelationsOptions
from headwise.studies.runner import model_for


def run(model, given, options=None) -> dict[str, xr.Dataset]:
    work = relations.prepare(model, StudyInputs(relations_source=given), options)
    shards = [work.measure(shard) for shard in split_shards(work.examples, work.shard_size)]
    provenance = work.provenance
    return {
        name: dataset.assign_attrs(type(provenance)(**{**provenance.__dict__, "study": name}).to_attrs())
        for name, dataset in work.finalize(shards).items()
    }


@pytest.fixture(scope="module")
def planted():
    return planted_relations_model()


@pytest.fixture(scope="module")
def maps(planted):
    return run(planted, planted_relations())


def test_the_planted_heads_are_found_and_no_others(maps):
    found = maps["relations"]
    score, suppression = found["score"], found["suppression"]
    assert float(score.sel(relation="country-capital", layer=CAPITAL[0], head=CAPITAL[1])) == 1
    assert float(suppression.sel(relation="antonym", layer=ANTONYM[0], head=ANTONYM[1])) == 1
    over = {
        (sign, str(relation), int(layer), int(head))
        for sign in ("score", "suppression")
        for relation, layer, head in _places(found[sign] > 0.15)
    }
    assert over == {("score", "country-capital", *CAPITAL), ("suppression", "antonym", *ANTONYM)}


def _places(where: xr.DataArray):
    for place in np.argwhere(where.transpose("relation", "layer", "head").values):
        yield where["relation"].values[place[0]], place[1], place[2]


def test_the_planted_heads_are_classified_and_the_signs_kept_apart(maps):
    found = maps["relations"]
    assert [str(name) for name in found["category"].values] == ["knowledge", "linguistic", "own"]
    assert int(found["member"].sum()) == 1
    assert bool(found["member"].sel(category="knowledge", layer=0, head=1))
    assert int(found["member_suppression"].sum()) == 1
    assert bool(found["member_suppression"].sel(category="linguistic", layer=2, head=3))
    assert int(found["member_beyond_null"].sum()) == 2
    names = {(layer, head): str(found["categories"].values[layer, head]) for layer in range(3) for head in range(4)}
    assert names.pop(CAPITAL) == "knowledge"
    assert names.pop(ANTONYM) == "linguistic"
    assert set(names.values()) == {""}
    assert str(found["best"].values[ANTONYM]) == "antonym (suppressed)"


def test_every_mapped_pair_is_named(maps):
    found = maps["relations"]
    mapped = found["mapped"].sel(layer=CAPITAL[0], head=CAPITAL[1])
    right = mapped["relation_of"].values[mapped.values]
    assert (right == "country-capital").sum() == PAIRS
    assert "country-capital: cous3 -> cout3" in set(mapped["example"].values[mapped.values])


def test_shuffled_targets_pass_nowhere(maps):
    found = maps["relations"]
    assert float(found["score_false_positive"].max()) <= 0.01
    assert float(found["score_null"].sel(relation="country-capital", layer=0, head=1)) < 0.1
    low, high = (
        float(found[f"score_{end}"].sel(relation="country-capital", layer=0, head=1)) for end in ("low", "high")
    )
    assert low == pytest.approx(0.912, abs=1e-3)
    assert high == 1


def test_the_datasets_are_as_promised(maps):
    for name, dataset in maps.items():
        check(dataset, dataset_spec(name).schema)
    report = json.loads(maps["relations"].attrs["kept"])
    assert [(one["relation"], one["kept"], one["counts"]) for one in report] == [(name, 40, True) for name in NAMES]


def test_salient_tokens_of_the_planted_head_are_its_sources(maps):
    found = maps["salience"]
    tokens = found["token"].sel(layer=0, head=1).values
    sources, targets = ids("country-capital", 0), ids("country-capital", 1)
    assert set(tokens) <= set(sources)
    assert len(set(tokens)) == 30
    first = found["targets"].sel(layer=0, head=1, target=0).values
    assert [targets[sources.index(token)] for token in tokens] == first.tolist()
    assert found.attrs["left_out"] == 4
    assert str(found["text"].sel(vocabulary=tokens[0]).values).startswith("cous")
    assert not set(found["token"].values.ravel()) & {0, 1, 2, 3}  # special tokens


def test_a_folder_is_read_without_building_the_model_and_gives_the_same(planted, maps, tmp_path):
    planted.hf.save_pretrained(tmp_path)
    planted.tokenizer.save_pretrained(tmp_path)
    stored = model_for(["relations"], tmp_path)
    assert type(stored).__name__ == "StoredModel"
    for name, dataset in run(stored, planted_relations()).items():
        xr.testing.assert_identical(dataset.drop_attrs(), maps[name].drop_attrs())
    assert stored.identity()["digest"] == planted.identity()["digest"]


def test_build_keeps_both_maps_and_columns(planted, tmp_path):
    planted.hf.save_pretrained(tmp_path / "model")
    planted.tokenizer.save_pretrained(tmp_path / "model")
    atlas = hw.build(tmp_path / "model", ["relations"], relations=planted_relations(), output=tmp_path / "atlas")
    assert atlas.studies == ["relations", "salience"]
    heads = atlas.heads()
    assert heads.loc["L0H1", "relations.categories"] == "knowledge"
    assert heads.loc["L2H3", "relations.best"] == "antonym (suppressed)"
    assert heads.loc["L0H1", "relations.best_score"] == 1
    assert heads.loc["L0H1", "salience.tokens"].startswith("cous")
    again = hw.build(
        load(tmp_path / "model"), ["relations"], relations=planted_relations(), output=tmp_path / "atlas"
    )  # nothing to do
    assert again.provenance("relations").created == atlas.provenance("relations").created


PLAIN = [
    "llama",
    "gpt2",
    "gpt_neox",
    "phi",
    "phi3",
    "mixtral",
    "gemma3_text",
    "qwen3",
    "olmo2",
    "cohere2",
    "starcoder2",
]


@pytest.mark.parametrize("family", PLAIN)
@pytest.mark.parametrize("norms", ["raw", "folded"])
def test_scores_are_those_of_the_plain_matrix(family, norms):
    """M = E' W_V W_O U in float64, vocabulary x vocabulary, head by head."""
    hf = build(family, seed=1)
    with torch.no_grad():
        for name, parameter in hf.named_parameters():
            if (parameter.ndim == 1 and "norm" in name) or ".ln_" in name:
                parameter.add_(0.3 * torch.randn(parameter.shape))
    weights = HeadWeights(load(hf))
    rng = np.random.default_rng(0)
    pairs = TokenPairs(
        rng.integers(0, VOCABULARY, 60), rng.integers(0, VOCABULARY, (4, 60)), np.repeat([0, 1], 30), np.array([1, 10]),
        np.array([True, False]),
    )  # fmt: skip
    reader = RelationReader(weights, pairs, np.arange(VOCABULARY), norms=norms, embedding="effective")
    k = pairs.k[pairs.relation]
    for layer in weights.card.attention_layers:
        found = reader.read(layer, 0.15)
        for head in range(weights.card.heads):
            matrix = _matrix(weights, layer, head, norms == "folded")
            rows = matrix[pairs.sources]  # (pair, vocabulary)
            for draw in range(4):
                own = rows[np.arange(60), pairs.targets[draw]][:, None]
                margin = 1e-5 * np.abs(rows).max(1)
                sure = (np.abs(rows - own) < margin[:, None]).sum(1) <= 1  # no other score within rounding
                speaks = np.abs(rows).max(1) > 0  # of a row of noughts (a padding token's) nothing is found
                larger, smaller = ((rows > own).sum(1) < k) & speaks, ((rows < own).sum(1) < k) & speaks
                if draw == 0:
                    mapped = found["score_mapped"].values[0, head], found["suppression_mapped"].values[0, head]
                    assert (mapped[0] == larger)[sure].all()
                    assert (mapped[1] == smaller)[sure].all()
                    assert sure.mean() > 0.8
            shares = [[_share(rows, pairs, k, draw, one) for one in (0, 1)] for draw in (1, 2, 3)]
            np.testing.assert_allclose(found["score_null"].values[0, head], np.mean(shares, axis=0), atol=0.03)


def _share(rows: np.ndarray, pairs: TokenPairs, k: np.ndarray, draw: int, relation: int) -> float:
    own = rows[np.arange(60), pairs.targets[draw]][:, None]
    found = ((rows > own).sum(1) < k) & (np.abs(rows).max(1) > 0)
    return float(found[pairs.relation == relation].mean())


def _matrix(weights: HeadWeights, layer: int, head: int, folded: bool) -> np.ndarray:
    one = weights.layer(layer)
    embedded = weights.embedding.double()
    read = embedded if layer == 0 else weights.effective(weights.embedding).double()
    write = weights.unembedding.double()
    if folded:
        gain = weights.gain(layer)
        read = read if gain is None else read * gain.double()
        write = write * weights.final_gain.double()
        behind = weights.post_norm_gain(layer)
        write = write if behind is None else write * behind.double()
    return (read @ one.value[head // one.group].double() @ one.output[head].double() @ write.T).detach().numpy()


def test_layers_without_heads_are_not_measured():
    """Jamba's first and third layer are recurrent; its first has no MLP path that could be told, so E is read."""
    hf = tiny("jamba")
    _, tokenizer = tiny_model()
    given = _words(tokenizer)
    found = run(load(hf, tokenizer), given, RelationsOptions(embedding="raw", shuffles=2))
    score = found["relations"]["score"]
    assert bool(score.isel(layer=[0, 2]).isnull().all())
    assert bool(score.isel(layer=[1, 3]).notnull().all())
    assert found["salience"]["token"].isel(layer=0).values.max() == -1
    assert not found["relations"]["member"].isel(layer=0).any()


def _words(tokenizer, count: int = 33) -> Relations:
    words = [word for word in tokenizer.get_vocab() if word.isalpha() and tokenizer.get_vocab()[word] < VOCABULARY]
    pairs = tuple(zip(words[:count], words[count : 2 * count], strict=True))
    return Relations("words", (Relation("words", "own", pairs),))


def test_k_follows_the_vocabulary():
    options = RelationsOptions()
    assert [options.k_of(copying, 49_152) for copying in (True, False)] == [1, 10]
    assert [options.k_of(copying, 128_256) for copying in (True, False)] == [3, 25]
    assert RelationsOptions(k=7).k_of(False, 128_256) == 7


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"norms": "foldet"}, "norms cannot be 'foldet'. Did you mean 'folded'"),
        ({"embedding": "none"}, "embedding cannot be 'none'"),
        ({"threshold": 15}, "threshold must be a share"),
        ({"shuffles": 0}, "shuffles must be at least 1, not 0"),
        ({"k": 0}, "k must be at least 1, not 0"),
    ],
)
def test_options_that_make_no_sense_are_refused(options, message):
    with pytest.raises(StudyError, match=message):
        RelationsOptions(**options)


def test_a_file_without_a_usable_pair_says_why(planted, tmp_path):
    file = tmp_path / "mine.json"
    file.write_text(json.dumps([["unheard", "of"], ["cous1", "cout1"]]))
    message = (
        r"none of the 1 relations of mine.json can be asked of planted relations; the best is 'mine': 1 of 2 pairs"
    )
    with pytest.raises(DataError, match=message):
        relations.prepare(planted, StudyInputs(relations_source=read_relations(file)))


def test_a_malformed_file_is_refused_before_anything_is_read(planted, tmp_path):
    file = tmp_path / "mine.json"
    file.write_text('[["hot", "cold", "warm"]]')
    with pytest.raises(DataError, match="mine"):
        hw.build(planted, ["relations"], relations=file, output=tmp_path / "atlas")
    assert not (tmp_path / "atlas").exists()


def test_without_a_tokenizer_it_is_said():
    with pytest.raises(DataError, match="has no tokenizer"):
        relations.prepare(load(tiny("llama")), StudyInputs(relations_source=planted_relations()))


@pytest.mark.real
@pytest.mark.xdist_group("default model")
def test_gguf_and_loaded_agree_on_the_default_model():
    """The default model comes as GGUF where it is not in the hub's cache; one layer, three relations."""
    try:
        stored, loaded = open_stored(), load()
    except hw.HeadwiseError as error:
        pytest.skip(f"the default model is not here: {error}")
    given = packaged_relations().only(["country-capital", "number-word", "superlative"])
    options = RelationsOptions(salience=False, shuffles=2)
    one, other = (relations.prepare(model, StudyInputs(relations_source=given), options) for model in (stored, loaded))
    assert one.provenance.key() == other.provenance.key()
    layer = split_shards(30, 1)[23]
    readings = one.measure(layer)
    xr.testing.assert_identical(readings, other.measure(layer))
    assert readings["score_mapped"].values[0, 4].mean() > 0.1  # L23H4 maps countries to capitals


@pytest.mark.parametrize("embedding", ["effective", "raw"])
@pytest.mark.parametrize("norms", ["raw", "folded"])
def test_copying_alone_scores_as_the_plain_matrix_says(norms, embedding):
    """M = E' U (or E U) in float64, without any head."""
    hf = build("llama", seed=3)
    with torch.no_grad():
        hf.model.norm.weight.add_(0.3 * torch.randn(hf.model.norm.weight.shape))
    weights = HeadWeights(load(hf))
    rng = np.random.default_rng(0)
    sources, targets = rng.integers(0, VOCABULARY, 60), rng.integers(0, VOCABULARY, (3, 60))
    targets[0, :15] = sources[:15]  # copying
    pairs = TokenPairs(sources, targets, np.repeat([0, 1], 30), np.array([1, 10]), np.ones(2, bool))
    found = RelationReader(weights, pairs, None, norms=norms, embedding=embedding).copied()
    every = torch.from_numpy(sources)
    rows = weights.embedding[every] if embedding == "raw" else weights.effective(weights.embedding[every])
    rows = rows.double() * (weights.final_gain.double() if norms == "folded" else 1.0)
    scores = (rows @ hf.get_output_embeddings().weight.double().T).detach().numpy()
    own, k = scores[np.arange(60), targets[0]][:, None], pairs.k[pairs.relation]
    speaks = np.abs(scores).max(1) > 0  # of a row of noughts (a padding token's) nothing is found
    for sign, hit in (("score", (scores > own).sum(1) < k), ("suppression", (scores < own).sum(1) < k)):
        hit = hit & speaks
        np.testing.assert_allclose(found[sign], [hit[:30].mean(), hit[30:].mean()], atol=1e-6)
    assert found["score"].max() > 0


def test_the_control_of_copying_stands_beside_the_scores(maps):
    found = maps["relations"]
    for sign in ("score", "suppression"):
        control = found[f"copied_{sign}"]
        assert control.dims == ("relation",) and control.dtype == np.float32 and control.notnull().all()


def test_heads_that_shuffled_targets_classify_are_counted():
    """One matrix per head by hand: in a shuffle a head counts once, whichever relation and sign it passes with."""
    weights = HeadWeights(load(build("llama", seed=3)))
    rng = np.random.default_rng(1)
    sources, targets = rng.integers(0, VOCABULARY, 60), rng.integers(0, VOCABULARY, (6, 60))
    pairs = TokenPairs(sources, targets, np.repeat([0, 1], 30), np.array([3, 3]), np.array([False, True]))
    reader = RelationReader(weights, pairs, None, norms="raw", embedding="effective")
    threshold, some = 0.08, 0
    for layer in weights.card.attention_layers:
        found = reader.read(layer, threshold)
        for head in range(weights.card.heads):
            rows = _matrix(weights, layer, head, False)[sources]
            for draw in range(1, 6):
                own = rows[np.arange(60), targets[draw]][:, None]
                hits = [(rows > own).sum(1) < 3, (rows < own).sum(1) < 3]
                passed = [max(hit[part].mean() for hit in hits) > threshold for part in (slice(0, 30), slice(30, 60))]
                cell = {"head": head, "draw": draw - 1}
                assert bool(found["null_classified"].isel(layer=0, **cell)) == any(passed)
                assert bool(found["null_classified_published"].isel(layer=0, **cell)) == passed[1]
                some += any(passed)
    assert some > 0, "the threshold is such that shuffles pass it"


def test_the_number_of_heads_that_a_shuffle_classifies_is_in_the_map(maps):
    found = maps["relations"]
    assert found["null_heads"].dims == ("draw",) and found.sizes["draw"] == found.attrs["shuffles"]
    assert (found["null_heads_published"] <= found["null_heads"]).all()
    assert (found["null_heads"] <= found.sizes["layer"] * found.sizes["head"]).all()
