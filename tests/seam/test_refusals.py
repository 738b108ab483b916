"""What cannot be measured right is refused, in words."""

import pytest
import torch
from families import FAMILIES, HEADLESS, UNSEEABLE, build, padded, texts, tiny
from transformers import AttentionInterface
from watchers import Call, Recorder

from headwise.core.errors import DataError, SeamError
from headwise.instruments import HeadOutputs, Profile, Spectrum
from headwise.seam import Structure, check, observe
from headwise.seam.interface import NAME, attend

WHY = {
    **dict.fromkeys(UNSEEABLE, "computes its attention by itself and never asks transformers' AttentionInterface"),
    **dict.fromkeys(HEADLESS, r"has no attention heads to read \(mamba: no heads\)"),
}


@pytest.mark.parametrize("family", WHY)
def test_families_that_never_come_by(family):
    with pytest.raises(SeamError, match=f"^{family}.*{WHY[family]}"), observe(tiny(family), Spectrum()):
        pytest.fail("was let in")
    report = check(tiny(family))
    assert not report.passed
    assert [c.name for c in report.checks] == ["layers"]
    assert family in report.checks[0].message


@pytest.mark.parametrize("family", ["qwen3_next", "jamba"])
def test_hybrids_show_their_attention_layers_only(family):
    model, ids = tiny(family), torch.stack(texts(20, 20))
    with torch.no_grad(), observe(model, Spectrum(k=3), HeadOutputs(), Profile()) as seen:
        model(input_ids=ids)
    card = Structure(model).card
    assert card.attention_layers == (1, 3)
    for name, variable in (("spectrum", "laplacian"), ("outputs", "z"), ("profile", "value")):
        values = seen[name][variable]
        without = values.sel(layer=[0, 2])
        assert bool(without.isnull().all())
        there = values.sel(layer=[1, 3])
        there = there.drop_sel(statistic=["delimiter", "induction", "duplicate"]) if name == "profile" else there
        assert not bool(there.isnull().any())


def test_layers_without_heads_are_named_and_no_reason_to_fail():
    report = check(tiny("qwen3_next"))
    assert report.refused == {0: "linear attention: no attention map", 2: "linear attention: no attention map"}
    assert report.passed, report


def test_a_layer_that_does_not_come_by_is_refused_after_the_pass():
    model = build("llama")
    model.model.layers[1].self_attn.forward = lambda hidden_states, **_: (hidden_states, None)
    with torch.no_grad(), observe(model), pytest.raises(SeamError, match="layer 1 did not reach the attention"):
        model(input_ids=texts(5)[0][None])


def test_a_layer_that_attends_twice_is_refused():
    model = build("llama")
    first = model.model.layers[0].self_attn
    own = first.forward
    first.forward = lambda *args, **kwargs: (own(*args, **kwargs), own(*args, **kwargs))[1]
    with torch.no_grad(), observe(model), pytest.raises(SeamError, match="layer 0 called its attention more than once"):
        model(input_ids=texts(5)[0][None])


def test_attention_dropout_in_training_is_refused():
    model = build("llama", attention_dropout=0.1).train()
    with observe(model, Spectrum()), pytest.raises(SeamError, match=r"attention dropout; call model\.eval\(\) first"):
        model(input_ids=texts(5)[0][None])
    model.eval()
    with torch.no_grad(), observe(model, Spectrum()) as seen:
        model(input_ids=texts(5)[0][None])
    assert seen["spectrum"].sizes["example"] == 1


def test_gradient_checkpointing_is_refused():
    """Layers would run again in the backward pass, and there without their interventions."""
    model = build("llama").train()
    model.gradient_checkpointing_enable()
    with observe(model), pytest.raises(SeamError, match=r"gradient checkpointing.*model\.eval\(\)"):
        model(input_ids=texts(5)[0][None])


def test_a_bias_on_the_logits_is_refused():
    ids = texts(6)[0][None]
    mask = torch.zeros(1, 1, 6, 6).masked_fill(~torch.ones(6, 6).tril().bool(), torch.finfo(torch.float32).min)
    mask[..., 3, 1] = -0.5
    with torch.no_grad(), observe(tiny("llama")), pytest.raises(SeamError, match="adds a bias to its attention logits"):
        tiny("llama")(input_ids=ids, attention_mask=mask)


def test_sight_of_the_future_is_refused():
    ids = texts(6)[0][None]
    mask = torch.ones(6, 6).tril().bool()[None, None].clone()
    mask[..., :3, :3] = True  # a prefix that attends to itself in both directions
    with torch.no_grad(), observe(tiny("llama")), pytest.raises(SeamError, match="lets a token see later tokens"):
        tiny("llama")(input_ids=ids, attention_mask=mask)
    with torch.no_grad(), observe(tiny("llama")), pytest.raises(SeamError, match="lets a token see later tokens"):
        tiny("llama")(input_ids=ids, attention_mask=torch.ones(1, 1, 6, 6, dtype=torch.bool))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"is_causal": False}, "attends in both directions"),
        ({"position_bias": torch.zeros(1)}, "passes its attention a tensor 'position_bias' that changes the weights"),
        ({"dropout": 0.1}, "training mode with attention dropout"),
    ],
)
def test_options_that_change_the_weights_are_refused(monkeypatch, options, words):
    model = tiny("llama")

    def meddling(*args, **kwargs):
        return attend(*args, **{**kwargs, **options})

    with torch.no_grad(), observe(model):
        monkeypatch.setitem(AttentionInterface._global_mapping, NAME, meddling)
        with pytest.raises(SeamError, match=words):
            model(input_ids=texts(5)[0][None])


def test_a_config_that_counts_heads_wrong_is_refused():
    model = build("llama")
    structure = Structure(model)
    model.config.num_attention_heads = model.config.num_key_value_heads = 3
    with torch.no_grad(), observe(model), pytest.raises(SeamError, match="attends with 6 heads, and its config says 3"):
        model(input_ids=texts(5)[0][None])
    assert structure.card.heads == 6


def test_what_is_not_an_instrument():
    with pytest.raises(SeamError, match="not Spectrum; make one first, for instance Spectrum"):
        observe(tiny("llama"), Spectrum)
    with pytest.raises(SeamError, match="not str; make one first"):
        observe(tiny("llama"), "spectrum")


def test_readings_by_name():
    with torch.no_grad(), observe(tiny("llama"), Spectrum(), Recorder(), Recorder()) as seen:
        tiny("llama")(input_ids=texts(5)[0][None])
    with pytest.raises(SeamError, match=r"no instrument 'spectrun' was given\. Did you mean 'spectrum'"):
        seen["spectrun"]
    with pytest.raises(SeamError, match="2 instruments are named 'recorder'; index with the instrument"):
        seen["recorder"]


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_says_which_tokens_are_real(family):
    """Told by the pass before any layer runs, and the same that the layers' masks tell."""
    contexts = []
    with torch.no_grad(), observe(tiny(family), Call(lambda call: contexts.append((call.context, call.attention)))):
        batch = padded(texts(9, 5, 7), "left")
        tiny(family)(**batch)
    for context, attention in contexts:
        assert torch.equal(context.valid, batch["attention_mask"].bool())
        assert torch.equal(attention.mask.key_valid, context.valid)
        assert torch.equal(attention.mask.valid_queries(3), context.valid)
        assert context.cached == 0
        assert context.before.tolist() == [0, 0, 0]


def test_heads_that_are_not_there():
    structure = Structure(tiny("jamba"))
    with pytest.raises(DataError, match="no head L9H0: jamba has layers 0 to 3"):
        structure.require_heads([(9, 0)])
    with pytest.raises(DataError, match=r"no head L0H0: layer 0 has none \(mamba: no heads\)"):
        structure.require_heads([(0, 0)])
    with pytest.raises(DataError, match="no head L1H6: layer 1 of jamba has heads 0 to 5"):
        structure.require_heads([(1, 5), (1, 6)])
    with pytest.raises(DataError, match="no head L1H-1"):
        structure.require_heads([(1, -1)])
