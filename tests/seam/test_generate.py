"""Under `generate`: greedy, with a cache, a left-padded batch. A decode step is a pass."""

import warnings
from typing import Any

import pytest
import torch
from families import FAMILIES, HYBRID, SCALED, build, padded, texts, tiny
from transformers import CompileConfig, StaticCache
from watchers import Recorder

from headwise.core.errors import SeamError
from headwise.instruments import Activations, HeadOutputs, Profile, Spectrum
from headwise.interventions import ScaleHeads
from headwise.seam import observe

NEW = 6
LENGTHS = (12, 7)


def prompt() -> dict[str, torch.Tensor]:
    batch = padded(texts(*LENGTHS), "left")
    return {"input_ids": batch["input_ids"], "attention_mask": batch["attention_mask"]}


def generate(model: Any, **kwargs: Any) -> torch.Tensor:
    return model.generate(**prompt(), max_new_tokens=NEW, min_new_tokens=NEW, do_sample=False, **kwargs)


@pytest.mark.parametrize("family", [*FAMILIES, *HYBRID, *SCALED])
def test_generation_is_observed_and_not_changed(family):
    """The prompt pass and every decode step: same tokens, and the same z as in one pass over all of them."""
    model, recorder, outputs = tiny(family), Recorder(), HeadOutputs("last")
    plain = generate(model)
    with torch.no_grad(), observe(model, recorder, outputs):
        assert torch.equal(generate(model), plain)
    assert len(recorder.contexts) == NEW  # the last token is never read
    assert [context.cached for context in recorder.contexts] == [0, *range(12, 12 + NEW - 1)]
    assert [context.before.tolist() for context in recorder.contexts] == [
        [0, 0],
        *([12 + i, 7 + i] for i in range(NEW - 1)),
    ]
    assert outputs.result().sizes["example"] == 2 * NEW

    whole = Recorder()
    mask = torch.cat([prompt()["attention_mask"], torch.ones(2, NEW, dtype=torch.long)], dim=1)
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    with torch.no_grad(), observe(model, whole):
        model(input_ids=plain, attention_mask=mask, position_ids=positions)
    for step, zs in enumerate(recorder.zs):
        for layer, z in zs.items():
            expected = whole.zs[0][layer][:, 12 + step - 1]
            torch.testing.assert_close(z[:, -1], expected, rtol=1e-3, atol=1e-3 * float(expected.std()))


def test_generation_on_a_static_cache_is_not_compiled():
    """transformers would compile its steps on a GPU: graphs, which run no Python of ours."""
    model, recorder = build("llama"), Recorder()
    compiling = CompileConfig(backend="eager", mode=None)
    compiling._compile_all_devices = True
    options = {"cache_implementation": "static", "compile_config": compiling}
    with torch.no_grad(), observe(model, recorder), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ids = generate(model, **options)
    assert len(recorder.contexts) == NEW
    assert not hasattr(model, "_compiled_call")
    assert model.generation_config.disable_compile is None
    assert torch.equal(ids, generate(model))


def test_a_compiled_model_is_observed():
    """Its decoder runs as it is under observation."""
    model, recorder = build("llama"), Recorder()
    compiled = torch.compile(model, backend="eager")
    with torch.no_grad():
        plain = compiled(**prompt()).logits
        with observe(model, recorder):
            torch.testing.assert_close(compiled(**prompt()).logits, plain)
    assert len(recorder.contexts) == 1


@pytest.mark.parametrize("family", ["llama", "gemma3_text"])
def test_reductions_of_a_decode_step_are_the_last_row_of_the_whole(family):
    model, recorder, whole = tiny(family), Recorder(), Recorder()
    ids = texts(20)[0][None]
    with torch.no_grad():
        cache = model(input_ids=ids[:, :-1], use_cache=True).past_key_values
        with observe(model, recorder):
            model(input_ids=ids[:, -1:], past_key_values=cache)
        with observe(model, whole):
            model(input_ids=ids)
    for layer, call in recorder.calls.items():
        got, expected = call.reductions, whole.calls[layer].reductions
        for name in ("entropy", "row_max", "log_diagonal", "distance_mean", "distance_variance", "top_weights"):
            torch.testing.assert_close(
                getattr(got, name)[:, :, 0], getattr(expected, name)[:, :, -1], rtol=1e-4, atol=1e-4
            )


@pytest.mark.parametrize("family", ["llama", "mistral", "gpt_oss"])
def test_a_prompt_in_chunks(family):
    """Several queries on top of a cache: an explicit mask, read off right."""
    model, ids, whole = tiny(family), texts(24)[0][None], Recorder()
    with torch.no_grad():
        with observe(model, whole):
            logits = model(input_ids=ids).logits
        recorder, cache = Recorder(), None
        with observe(model, recorder):
            for start in (0, 5, 17):
                stop = {0: 5, 5: 17, 17: 24}[start]
                out = model(input_ids=ids[:, start:stop], past_key_values=cache, use_cache=True)
                cache = out.past_key_values
                torch.testing.assert_close(
                    out.logits, logits[:, start:stop], rtol=1e-3, atol=1e-3 * float(logits.std())
                )
                for layer, call in recorder.calls.items():
                    expected = whole.calls[layer].reductions.entropy[:, :, start:stop]
                    torch.testing.assert_close(call.reductions.entropy, expected, rtol=1e-3, atol=1e-4)
    assert [context.cached for context in recorder.contexts] == [0, 5, 17]


@pytest.mark.parametrize("family", ["llama", "gemma3_text"])
def test_a_cache_longer_than_its_content(family):
    """A static cache: empty places behind the text are no keys."""
    model, recorder = tiny(family), Recorder()
    plain = generate(model)
    with torch.no_grad(), observe(model, recorder):
        cached = generate(model, past_key_values=StaticCache(config=model.config, max_cache_len=40))
    assert torch.equal(cached, plain)
    assert [context.cached for context in recorder.contexts] == [0, *range(12, 12 + NEW - 1)]
    assert [context.before.tolist() for context in recorder.contexts[1:]] == [[12 + i, 7 + i] for i in range(NEW - 1)]
    full = [f for f in recorder.calls.values() if f.attention.k.shape[2] == 40]
    assert full
    for call in full:
        assert call.attention.mask.n_visible_keys(2)[:, 0, 0].tolist() == [12 + NEW - 1, 7 + NEW - 1]


@pytest.mark.parametrize(("instrument", "name"), [(Spectrum, "Spectrum"), (Profile, "Profile")])
def test_whole_sequence_instruments_refuse_a_cache(instrument, name):
    with (
        torch.no_grad(),
        observe(tiny("llama"), instrument()),
        pytest.raises(SeamError, match=f"{name} needs complete sequences, but this pass has a KV cache of 12 tokens"),
    ):
        generate(tiny("llama"))


@pytest.mark.parametrize("family", ["mistral", "llama"])
def test_a_number_is_a_place_in_the_text_also_in_window_layers(family):
    """Place 14 of example 0 is made in the third decode step, that of example 1 never: once, and not in every step."""
    outputs, sites = HeadOutputs([14, 8]), Activations(positions=[14, 8])
    with torch.no_grad(), observe(tiny(family), outputs, sites):
        generate(tiny(family))
    z = outputs.result().z.isel(width=0).values.reshape(NEW, 2, 2, 6, 2)  # pass, example, layer, head, token
    found = ~torch.tensor(z).isnan()[:, :, 0, 0]
    assert found.nonzero().tolist() == [[0, 0, 1], [2, 1, 1], [3, 0, 0]]  # pass, example, which
    assert bool((~torch.tensor(z).isnan() == found[:, :, None, None]).all())  # in every layer and head
    activation = sites.result().activation.isel(site=0, width=0).values.reshape(NEW, 2, 2, 2)
    assert bool((~torch.tensor(activation).isnan()[:, :, 0] == found).all())


@pytest.mark.parametrize("beams", [1, 3])
def test_interventions_act_in_every_step(beams):
    model = build("llama")
    plain = generate(model, num_beams=beams)
    heads = [(layer, head) for layer in range(2) for head in range(6)]
    with torch.no_grad(), observe(model, ScaleHeads(heads, 1.0)):
        assert torch.equal(generate(model, num_beams=beams), plain)
    with torch.no_grad(), observe(model, ScaleHeads(heads, 0.0)):
        changed = generate(model, num_beams=beams)
    assert not torch.equal(changed, plain)
    # the same by hooks on the input of the output projections
    handles = [
        layer.self_attn.o_proj.register_forward_pre_hook(lambda _, args: (torch.zeros_like(args[0]),))
        for layer in model.model.layers
    ]
    assert torch.equal(generate(model, num_beams=beams), changed)
    for handle in handles:
        handle.remove()
    assert torch.equal(generate(model, num_beams=beams), plain)
