import copy
import json
from dataclasses import replace

import pytest
import torch

import headwise as hw
from headwise.core.errors import DataError, ModelError, StudyError
from headwise.model.gate import gate_of, put_gate
from headwise.training import Texts, sparsify
from headwise.training.student import fit_of


def weights_of(hf):
    return {name: weight.detach().clone() for name, weight in hf.named_parameters()}


def final_of(folder, bias=0.0):
    told = json.loads((folder / "training.json").read_text())
    return next(row for row in told["final"] if row["bias"] == bias)


def test_few_edges_at_nearly_the_dense_loss(toy, texts, held_out, recipe, tmp_path):
    seen = []
    folder = sparsify(
        toy, texts, held_out, recipe(), output=tmp_path / "sparse", unseen=Texts({"same": texts.kinds["counting"]}),
        progress=lambda done, total, numbers: seen.append((done, total, numbers["share"])),
    )  # fmt: skip
    end = final_of(folder)
    assert end["share"] < 0.2
    assert end["loss"] < end["dense"] + 0.1
    assert seen[-1][:2] == (240, 240)
    assert seen[0][2] > 0.6  # most gates start open
    more = final_of(folder, 4.0)
    assert more["share"] > end["share"]
    told = json.loads((folder / "training.json").read_text())
    assert {row["texts"] for row in told["final"]} == {"held-out", "unseen"}
    again = hw.load(folder)
    assert gate_of(again.hf) == 0.0
    assert gate_of(toy.hf) is None  # the dense model is as it was
    ids = torch.from_numpy(held_out.evenly_spaced("other", 32, 24)).long()
    assert float(fit_of(again(input_ids=ids).logits, toy(input_ids=ids).logits, ids).loss) == pytest.approx(end["loss"])


def test_an_adapter_leaves_the_model_as_it_was(toy, texts, held_out, recipe, tmp_path):
    before = weights_of(toy.hf)
    plan = recipe(rank=4, rank_attention=6, steps=40, evaluate=10)
    folder = sparsify(toy, texts, held_out, plan, output=tmp_path / "sparse")
    assert all(torch.equal(weight, before[name]) for name, weight in weights_of(toy.hf).items())
    sparse = hw.load(copy.deepcopy(toy.hf), adapter=folder)
    assert gate_of(sparse.hf) == 0.0
    ids = torch.from_numpy(held_out.evenly_spaced("other", 32, 24)).long()
    found = fit_of(sparse(input_ids=ids).logits, toy(input_ids=ids).logits, ids)
    assert float(found.loss) == pytest.approx(final_of(folder)["loss"], abs=2e-3)  # kept in half precision
    assert float(found.distance) > 1e-3
    assert hw.check(sparse).passed


def test_a_killed_run_goes_on_to_the_same_end(toy, texts, held_out, recipe, tmp_path):
    plan = recipe(steps=30, evaluate=10, checkpoint=7)
    other = hw.load(copy.deepcopy(toy.hf))
    third = hw.load(copy.deepcopy(toy.hf))
    whole = sparsify(toy, texts, held_out, plan, output=tmp_path / "whole")

    def kill(done, total, numbers):
        if done == 17:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sparsify(other, texts, held_out, plan, output=tmp_path / "parts", progress=kill)
    resumed = []
    parts = sparsify(
        third, texts, held_out, plan, output=tmp_path / "parts", progress=lambda done, *_: resumed.append(done)
    )
    assert resumed[0] == 15  # after the checkpoint at 14
    first, second = weights_of(hw.load(whole).hf), weights_of(hw.load(parts).hf)
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert final_of(whole) == final_of(parts)


def test_the_dense_control_has_no_gates(toy, texts, held_out, recipe, tmp_path):
    folder = sparsify(toy, texts, held_out, recipe(gated=False, steps=10, distil=0.0), output=tmp_path / "dense")
    assert final_of(folder)["share"] == 1.0
    assert gate_of(hw.load(folder).hf) is None


def test_what_is_refused(toy, texts, held_out, recipe, tmp_path):
    plan = recipe(steps=4, evaluate=2)
    with pytest.raises(Exception, match="tokens and a row needs"):
        sparsify(toy, Texts({"short": texts.kinds["counting"][:10]}), held_out, plan, output=tmp_path / "a")
    other = hw.load(copy.deepcopy(toy.hf))
    sparsify(toy, texts, held_out, plan, output=tmp_path / "b", stop_at=2)
    with pytest.raises(StudyError, match="another recipe"):
        sparsify(other, texts, held_out, replace(plan, learning_rate=1e-4), output=tmp_path / "b")
    put_gate(toy.hf)
    with pytest.raises(ModelError, match="already sparse or has an adapter"):
        sparsify(toy, texts, held_out, plan, output=tmp_path / "c")


def test_texts_that_are_none(toy, texts, tmp_path):
    with pytest.raises(DataError, match="read_texts"):
        sparsify(toy, ["a text"], texts, output=tmp_path)


def test_a_damaged_checkpoint_is_named(toy, texts, held_out, recipe, tmp_path):
    other = hw.load(copy.deepcopy(toy.hf))
    sparsify(toy, texts, held_out, recipe(steps=4, evaluate=2), output=tmp_path, stop_at=2)
    (tmp_path / "checkpoint-000002/weights.safetensors").write_bytes(b"broken")
    with pytest.raises(StudyError, match="checkpoint-000002 is damaged"):
        sparsify(other, texts, held_out, recipe(steps=4, evaluate=2), output=tmp_path)


def test_a_finished_run_is_not_overwritten(toy, texts, held_out, recipe, tmp_path):
    other = hw.load(copy.deepcopy(toy.hf))
    sparsify(toy, texts, held_out, recipe(steps=2), output=tmp_path)
    with pytest.raises(StudyError, match="finished run"):
        sparsify(other, texts, held_out, recipe(steps=2), output=tmp_path)


def test_a_loss_that_is_not_finite_stops_the_run(toy, texts, held_out, recipe, tmp_path):
    with torch.no_grad():
        next(toy.hf.parameters()).fill_(float("nan"))
    with pytest.raises(StudyError, match="not finite at step 0"):
        sparsify(toy, texts, held_out, recipe(steps=4), output=tmp_path)
