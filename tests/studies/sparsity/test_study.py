"""Sparsity without training: nothing dropped costs nothing, and costs are those of a pass done by hand."""

import numpy as np
import pytest
import torch
from planted import tiny_passages

from headwise.core.errors import StudyError
from headwise.interventions import DropAttention
from headwise.kernels import SparsityRule
from headwise.seam import observe
from headwise.studies import build
from headwise.studies.inputs import StudyInputs
from headwise.studies.sparsity.measure import prepare
from headwise.studies.sparsity.spec import SparsityOptions

OPTIONS = SparsityOptions(
    rules=("top 2", "top 99", "over 0.2", "window 3 + 1", "entmax 1.5", "random 2"), prompts=8, tokens=16, shard=4
)


@pytest.fixture(scope="module")
def built(tiny, tmp_path_factory):
    folder = tmp_path_factory.mktemp("sparsity") / "atlas"
    return build(tiny, ["sparsity"], data=tiny_passages(8), output=folder, options={"sparsity": OPTIONS})


def test_to_keep_all_costs_nothing(built):
    one = built["sparsity"].sel(rule="top 99")
    assert float(abs(one["rise"])) < 1e-5 and float(one["kl"]) < 1e-6
    assert float(one["change"].max()) < 1e-5 and float(one["kept_mean"]) == 1 and float(one["mass_mean"]) == 0


def test_the_largest_weights_are_worth_more_than_random_ones(built):
    found = built["sparsity"]
    assert float(found["mass_mean"].sel(rule="top 2")) < float(found["mass_mean"].sel(rule="random 2"))
    assert float(found["change_mean"].sel(rule="top 2")) < float(found["change_mean"].sel(rule="random 2"))
    assert float(found["kept_mean"].sel(rule="top 2")) == pytest.approx(31 / 136)


def test_costs_are_those_of_a_pass_by_hand(built, tiny):
    work = prepare(tiny, StudyInputs(tiny_passages(8)), OPTIONS)
    assert work.examples == 8
    ids = torch.tensor([tiny.ids(item.text)[:16] for item in tiny_passages(8).first(8).items])
    with torch.no_grad():
        dense = tiny.hf(ids).logits[:, :-1].double().log_softmax(-1)
        with observe(tiny, DropAttention(SparsityRule("window", 3, sink=1))):
            cut = tiny.hf(ids).logits[:, :-1].double().log_softmax(-1)
    losses = [-logs.gather(-1, ids[:, 1:, None])[..., 0].mean(-1) for logs in (dense, cut)]
    one = built["sparsity"].sel(rule="window 3 + 1")
    rise = (losses[1] - losses[0]).numpy()
    assert float(one["rise"]) == pytest.approx(rise.mean(), abs=1e-5)
    assert float(one["kl"]) == pytest.approx(float((dense.exp() * (dense - cut)).sum(-1).mean()), rel=1e-3)
    half = 2.3646 * rise.std(ddof=1) / np.sqrt(8)
    assert float(one["rise_high"]) == pytest.approx(rise.mean() + half, abs=1e-5)
    assert float(built["sparsity"]["dense"]) == pytest.approx(float(losses[0].mean()), abs=1e-5)


def test_the_record_has_what_a_head_needs(built):
    columns = built.heads().columns
    assert "sparsity.needed" in columns and "sparsity.top_2.change" in columns


@pytest.mark.parametrize(
    "wrong", [{"rules": ("top",)}, {"rules": ("best 3",)}, {"rules": ("top 2", "top 2")}, {"rules": ()}, {"prompts": 1}]
)
def test_what_is_no_rule_is_refused(wrong):
    with pytest.raises(StudyError):
        SparsityOptions(**wrong)
