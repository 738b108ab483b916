"""A sparse model through `load`: the gate goes with the folder, the adapter, or the config, and does what it says."""

import copy
import json

import pytest
import torch
from planted import save_tiny, tiny_model

import headwise as hw
from headwise.core.errors import ModelError
from headwise.kernels.reference import reduce_weights
from headwise.model import packaged_adapter
from headwise.model.gate import FILE, gate_of, put_gate
from headwise.seam.verify import everything


@pytest.fixture
def pair():
    hf, tokenizer = tiny_model()
    dense, sparse = hw.load(hf, tokenizer), hw.load(copy.deepcopy(hf), tokenizer)
    put_gate(sparse.hf)
    return dense, sparse


def test_open_gates_change_nothing_and_shut_ones_leave_nothing(pair):
    dense, sparse = pair
    inputs = dense.encode(["the cat sat on the mat .", "a dog"])
    put_gate(sparse.hf, 1e6)
    real = inputs["attention_mask"].bool()
    assert torch.allclose(sparse(**inputs).logits[real], dense(**inputs).logits[real], atol=1e-5)
    put_gate(sparse.hf, -1e6)
    with hw.observe(sparse, hw.HeadOutputs()) as seen:
        sparse(**inputs)
    assert not seen["outputs"]["z"].fillna(0).values.any()


def test_what_instruments_see_are_the_open_edges(pair):
    _, sparse = pair
    inputs = sparse.encode("the cat sat on the mat . the dog sat too .")
    with hw.observe(sparse, hw.Patterns()) as seen:
        sparse(**inputs)
    weights = seen["patterns"]["weights"]
    assert bool((weights.sum("key") < 0.999).any())  # what is cut is not given to others
    assert hw.check(sparse).passed


def test_generation_goes_through_the_gates(pair):
    dense, sparse = pair
    inputs = dense.encode("the cat sat on")
    whole = sparse(input_ids=sparse.generate(**inputs, max_new_tokens=6, do_sample=False)).logits[:, -2]
    stepwise = sparse.generate(**inputs, max_new_tokens=6, do_sample=False)
    assert int(whole.argmax()) == int(stepwise[0, -1])


def test_a_gate_in_the_config_is_loaded_with_the_model(tmp_path):
    folder = save_tiny(tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "attention_gate": 0.5}))
    model = hw.load(folder)
    assert gate_of(model.hf) == 0.5
    hf = copy.deepcopy(model.hf)
    assert torch.equal(model(input_ids=torch.arange(9)[None]).logits, hf(input_ids=torch.arange(9)[None]).logits)


@pytest.fixture(scope="module")
def packaged():
    """The default model and the sparse one made from it, with the user's own cache: converting the weights takes long."""
    try:
        dense = hw.load()
    except ModelError as error:
        pytest.skip(str(error))
    return dense, hw.load(adapter=packaged_adapter(dense))


@pytest.mark.real
@pytest.mark.xdist_group("default model")
def test_the_packaged_adapter_is_for_the_default_model_alone(pair, packaged):
    assert packaged_adapter(pair[0]) is None
    default, sparse = packaged
    assert packaged_adapter(default) is not None
    assert gate_of(sparse.hf) == 0.0
    assert packaged_adapter(sparse) is None


@pytest.mark.real
@pytest.mark.xdist_group("default model")
def test_the_packaged_model_is_sparse_at_the_dense_loss(packaged):
    dense, sparse = packaged
    text = (
        "The river rises in the hills north of the town and flows south for thirty miles before it reaches the sea. In the "
        "nineteenth century mills were built along its banks, and a canal joined it to the coal fields in the west."
    )
    inputs = dense.encode(text)
    losses = [float(m(**inputs, labels=inputs["input_ids"]).loss) for m in (dense, sparse)]
    assert losses[1] < losses[0] + 0.15
    with hw.observe(sparse, hw.Patterns()) as seen:
        sparse(**inputs)
    weights = seen["patterns"]["weights"].values
    tokens = weights.shape[-1]
    share = (weights > 0).sum() / (weights.shape[1] * tokens * (tokens + 1) / 2)
    assert share < 0.4  # on a text this short; 3 % at a thousand tokens


def test_a_damaged_gate_file(tmp_path, pair):
    from headwise.model.gate import gate_note

    (tmp_path / FILE).write_text("{}")
    with pytest.raises(ModelError, match="is damaged"):
        gate_note(tmp_path, {})


def test_rows_that_look_nowhere_have_no_entropy(pair):
    _, sparse = pair
    put_gate(sparse.hf, -1e6)
    ids = torch.arange(12)[None]

    class Keep(hw.Profile):
        def on_layer(self, call):
            wanted = everything(ids)
            maps = call.attention.weights(dtype=torch.float64)
            assert not maps.any()
            assert reduce_weights(maps, call.attention, wanted).entropy.isnan().all()
            super().on_layer(call)

    with hw.observe(sparse, Keep()) as seen:
        sparse(input_ids=ids)
    value = seen["profile"]["value"]
    assert value.sel(statistic="entropy").isnull().all()
    assert (value.sel(statistic="sink") < 1e-30).all()  # the floor of the log-weights
