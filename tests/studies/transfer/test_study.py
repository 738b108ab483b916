"""Planted signals: what all sets share carries over, what one set has alone does not; from questions to the atlas."""

import json

import numpy as np
import pytest
import xarray as xr
from scipy.stats import rankdata
from synthetic.transfer import RANKS, SETS, answers, transfer

import headwise as hw
from headwise.core.errors import DataError, StudyError
from headwise.core.schema import check
from headwise.studies import TransferOptions
from headwise.studies.registry import dataset_spec
from headwise.studies.transfer.measure import finalize, question_sets


@pytest.fixture(scope="module")
def found() -> xr.Dataset:
    return transfer()


def off_diagonal(dataset: xr.Dataset, name: str, variable: str = "auroc") -> np.ndarray:
    square = dataset[variable].sel(detector=name, trained_on=list(SETS), tested_on=list(SETS)).values
    return square[~np.eye(len(SETS), dtype=bool)]


def on_diagonal(dataset: xr.Dataset, name: str, variable: str = "auroc") -> np.ndarray:
    return np.diag(dataset[variable].sel(detector=name, trained_on=list(SETS), tested_on=list(SETS)).values)


def test_a_signal_that_all_sets_share_carries_over(found):
    assert (off_diagonal(found, "Entropy", "auroc_low") > 0.7).all()
    assert (on_diagonal(found, "Entropy", "auroc_low") > 0.7).all()
    assert (found["auroc_low"].sel(detector="Entropy", trained_on="others") > 0.7).all()
    assert np.abs(off_diagonal(found, "Entropy") - on_diagonal(found, "Entropy").mean()).max() < 0.1


def test_a_signal_of_one_set_does_not(found):
    assert (on_diagonal(found, "Lookback", "auroc_low") > 0.7).all()
    low, high = off_diagonal(found, "Lookback", "auroc_low"), off_diagonal(found, "Lookback", "auroc_high")
    assert (low < 0.5).sum() >= 5 and (high > 0.5).sum() >= 5  # of six 95 % intervals
    noise = ("LapEigvals", "AttnEigvals", "AttnLogDet", "Hidden state")
    above = [int((off_diagonal(found, name, "auroc_low") > 0.5).sum()) for name in noise]
    assert sum(above) <= 4  # of 24 cells; from a to b and from b to a are found together, so they come in pairs


def test_the_words_of_the_question_are_in_the_table(found):
    words = "Question: words"
    assert str(found["kind"].sel(detector=words).item()) == "question"
    inside = found["auroc"].sel(detector=words)
    assert float(inside.sel(trained_on="alpha", tested_on="alpha")) > 0.7  # zebras
    assert (found["auroc_low"].sel(detector=words, trained_on="alpha", tested_on=["beta", "gamma"]) < 0.5).all()
    assert "Question: length" in found["detector"].values


def test_a_score_is_its_own_auroc_in_every_row(found):
    data = answers()
    wrong, score = data["label"].values == "wrong", -data["logprob_mean"].values
    for name in SETS:
        own = data["topic"].values == name
        ranks, n = rankdata(score[own]), wrong[own].sum()
        area = (ranks[wrong[own]].sum() - n * (n + 1) / 2) / (n * (~wrong[own]).sum())
        rows = found["auroc"].sel(detector="Log-probability, mean", tested_on=name).values
        np.testing.assert_allclose(rows, area, rtol=1e-5)


def test_the_dataset_is_what_the_spec_declares(found):
    spec = dataset_spec("transfer")
    assert spec is not None
    check(found, spec.schema)
    assert found["n_wrong"].values.tolist() == [
        int((answers()["label"].values == "wrong")[answers()["topic"].values == name].sum()) for name in SETS
    ]
    right = (answers()["label"].values == "correct").reshape(3, -1).mean(axis=1)
    np.testing.assert_allclose(found["accuracy"], right, rtol=1e-6)


def test_refusals_and_empty_answers_are_left_out():
    data = answers()
    label, tokens = data["label"].values.copy(), data["answer_tokens"].values.copy()
    label[:10], tokens[10:20] = "refused", 0
    data = data.assign(label=("example", label), answer_tokens=("example", tokens))
    data["entropy"].values[:20] = np.nan  # nothing was read there
    dataset = finalize(data, TransferOptions(sets=SETS, k=RANKS))
    assert int(dataset["n_wrong"][0] + dataset["n_right"][0]) == 100 and dataset.sizes["example"] == 360
    assert float(dataset["accuracy"][0]) == pytest.approx((label[:120] == "correct").mean())


def test_a_set_with_too_few_answers_of_a_class_stays_empty():
    data = answers()
    label = data["label"].values.copy()
    label[:110] = "correct"
    dataset = finalize(data.assign(label=("example", label)), TransferOptions(sets=SETS, k=RANKS))
    assert dataset["auroc"].sel(tested_on="alpha").isnull().all()
    assert dataset["auroc"].sel(trained_on="alpha", detector="Entropy").isnull().all()
    assert dataset["auroc"].sel(trained_on="beta", tested_on="gamma").notnull().all()
    label[120:230] = "correct"
    with pytest.raises(DataError, match="two question sets with at least 20 wrong"):
        finalize(data.assign(label=("example", label)), TransferOptions(sets=SETS, k=RANKS))


def test_sets_are_named_and_told_apart(tmp_path):
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        rows = [{"question": f"q{n}?", "answers": ["a"]} for n in range(9)]
        (tmp_path / folder / "mine.jsonl").write_text("\n".join(map(json.dumps, rows)))
    path = str(tmp_path / "one" / "mine.jsonl")
    sets = question_sets(TransferOptions(sets=(path, "packaged"), limit=5))
    assert list(sets) == ["mine", "packaged"] and [len(one) for one in sets.values()] == [5, 5]
    with pytest.raises(DataError, match="would be called 'mine'"):
        question_sets(TransferOptions(sets=(path, str(tmp_path / "two" / "mine.jsonl"))))
    with pytest.raises(StudyError, match="at least two question sets, and 1 were given"):
        question_sets(TransferOptions(sets=(path,)))


def test_from_questions_to_the_atlas(tiny, tmp_path):
    """Given answers with labels, so that the tiny model need not be right."""
    random = np.random.default_rng(0)
    vocabulary = [word for word in tiny.tokenizer.get_vocab() if word.isalpha()][:40]
    paths = []
    for name in ("first", "second"):
        rows = [
            {
                "id": f"q{n}", "question": " ".join(random.choice(vocabulary, 6)), "answers": ["x"],
                "response": " ".join(random.choice(vocabulary, 3)), "label": "wrong" if n % 2 else "correct",
            }
            for n in range(60)
        ]  # fmt: skip
        path = tmp_path / f"{name}.jsonl"
        path.write_text("\n".join(map(json.dumps, rows)))
        paths.append(str(path))
    options = TransferOptions(sets=tuple(paths), k=3, refits=2, shard=25)
    atlas = hw.build(tiny, [options], output=tmp_path / "atlas", progress=False)
    dataset = atlas["transfer"]
    assert dataset["tested_on"].values.tolist() == ["first", "second"] and dataset.sizes["example"] == 120
    assert dataset["n_wrong"].values.tolist() == [30, 30] and dataset["auroc"].notnull().all()
    assert atlas.provenance("transfer").data["name"] == "first, second"
    assert "transfer" in atlas and atlas.describe("transfer").short()
