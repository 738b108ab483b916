"""Put on, taken off, nested, interleaved: the model is as it was, and everyone sees what they should."""

import gc
import threading
import weakref
from typing import Any

import pytest
import torch
import xarray as xr
from accelerate.hooks import ModelHook, add_hook_to_module
from families import build, padded, texts, tiny
from planted import tiny_model
from watchers import Change, Recorder

from headwise.core.errors import SeamError
from headwise.instruments import Activations, HeadOutputs, Profile, Spectrum
from headwise.interventions import ScaleHeads
from headwise.model import load
from headwise.seam import forward, observe, run


def traces(model: Any) -> list[Any]:
    """Everything the seam could leave behind on a model."""
    hooks = [
        (name, len(module._forward_hooks), len(module._forward_pre_hooks)) for name, module in model.named_modules()
    ]
    own = [name for name, module in model.named_modules() if "forward" in vars(module)]
    configs = [m.config._attn_implementation for m in model.modules() if hasattr(m, "config")]
    return [hooks, own, configs, dict(forward._ACTIVE)]


def ids(length: int = 7, seed: int = 1) -> torch.Tensor:
    return texts(length, seed=seed)[0][None]


@pytest.fixture
def model() -> Any:
    return build("llama")


EVERYONE = (
    Spectrum,
    Profile,
    HeadOutputs,
    lambda: Activations(("residual", "mlp_in", "attention_out")),
    lambda: ScaleHeads("L0H0"),
)


def test_restored_on_exit(model):
    before = traces(model)
    logits = model(input_ids=ids()).logits
    with torch.no_grad(), observe(model, *(one() for one in EVERYONE)):
        assert traces(model) != before
        model(input_ids=ids())
    assert traces(model) == before
    assert torch.equal(model(input_ids=ids()).logits, logits)


def test_restored_after_an_exception_in_the_with(model):
    before = traces(model)
    with pytest.raises(ZeroDivisionError), observe(model, *(one() for one in EVERYONE)):
        raise ZeroDivisionError
    assert traces(model) == before


def test_restored_after_an_exception_inside_the_forward(model):
    before = traces(model)

    def fail(call: Any) -> Any:
        if call.layer == 1 and call.context.index == 1:
            raise ZeroDivisionError
        return call.z

    spectrum, sites, recorder = Spectrum(k=2), Activations(positions=0), Recorder()
    with torch.no_grad(), observe(model, spectrum, sites, Profile(), recorder, Change(fail)):
        model(input_ids=ids())
        with pytest.raises(ZeroDivisionError):
            model(input_ids=torch.cat([ids(5), ids(5)]))  # another batch, half seen
        assert forward.CURRENT.get() is None
        passes = len(recorder.contexts)
        assert passes == 1
    assert traces(model) == before
    assert spectrum.result().sizes["example"] == 1
    # the same instruments go on, and the half-seen batch has left nothing in them
    with torch.no_grad(), observe(model, spectrum, sites, recorder):
        model(input_ids=ids(9))
    assert spectrum.result().sizes["example"] == 2
    assert sites.result().sizes["example"] == 2
    fresh = Activations(positions=0)
    with torch.no_grad(), observe(model, fresh):
        model(input_ids=ids(9))
    torch.testing.assert_close(sites.result().activation.values[1], fresh.result().activation.values[0], rtol=0, atol=0)


def test_restored_when_an_instrument_cannot_attach(model):
    before = traces(build("opt"))
    opt = build("opt")
    with pytest.raises(SeamError), observe(opt, Spectrum(), Activations(("residual", "mlp_in"))):
        pytest.fail("was let in")
    assert [*traces(opt)[:3]] == before[:3]
    assert not forward._ACTIVE


def test_attaching_shows_no_pass_to_others(model):
    """Profile and Activations look for the output projection with a pass of their own: nobody else may count it."""
    outer, spectrum, sites = Recorder(), Spectrum(k=2), Activations(("residual", "attention_out"))
    with torch.no_grad(), observe(model, outer), observe(model, spectrum, sites, Profile()) as seen:
        assert outer.contexts == []
        model(input_ids=ids())
    assert len(outer.contexts) == 1
    for name in ("spectrum", "activations", "profile"):
        assert seen[name].sizes["example"] == 1


def test_the_same_model_again_and_the_same_observation_again(model):
    observation = observe(model, Spectrum(k=2))
    for examples in (1, 2):
        with torch.no_grad(), observation as seen:
            model(input_ids=ids())
        assert seen["spectrum"].sizes["example"] == examples
    with observation, pytest.raises(SeamError, match="running already"), observation:
        pass
    assert not forward._ACTIVE


def test_nested_observations_see_one_another(model):
    """Interventions of the outer act first; instruments of both see what the model goes on with."""
    plain, outer, inner = Recorder(), Recorder(name="outer"), Recorder(name="inner")
    with torch.no_grad():
        with observe(model, plain):
            model(input_ids=ids())
        with observe(model, outer, Change(lambda f: f.z + 1)), observe(model, inner, Change(lambda f: f.z * 2)):
            model(input_ids=ids())
    assert len(outer.contexts) == len(inner.contexts) == 1
    expected = (plain.zs[0][0] + 1) * 2
    torch.testing.assert_close(outer.zs[0][0], expected)
    torch.testing.assert_close(inner.zs[0][0], expected)
    assert inner.calls[0].reductions.flat().keys() == plain.calls[0].reductions.flat().keys()


def test_a_layer_looked_at_when_the_next_one_is_queued_looks_the_same(model, monkeypatch):
    order: list[str] = []

    class Told(Recorder):
        def on_layer(self, call):
            order.append(f"saw {call.layer}")
            super().on_layer(call)

    def readings() -> tuple[list[xr.Dataset], list[str]]:
        everyone = [one() for one in EVERYONE[:-1]]
        hooks = [
            layer.register_forward_hook(lambda *_, place=place: order.append(f"ran {place}"))
            for place, layer in enumerate(model.model.layers)
        ]
        with torch.no_grad(), observe(model, *everyone, Told()):
            order.clear()  # attaching runs layers too
            model(input_ids=ids())
        for hook in hooks:
            hook.remove()
        return [one.result() for one in everyone], list(order)

    at_once, told = readings()
    assert told[:2] == ["saw 0", "ran 0"]
    monkeypatch.setattr(forward, "ASYNC_DEVICES", ("cpu",))
    behind, told = readings()
    assert told[:2] == ["ran 0", "saw 0"] and told[-1].startswith("saw")
    for one, other in zip(at_once, behind, strict=True):
        xr.testing.assert_identical(one, other)


def test_interventions_in_one_observation_act_in_their_order(model):
    recorder = Recorder()
    with torch.no_grad(), observe(model, recorder):
        model(input_ids=ids())
    plain = recorder.zs[0][0]
    with torch.no_grad(), observe(model, Change(lambda f: f.z + 1), recorder, Change(lambda f: f.z * 2)):
        model(input_ids=ids())
    torch.testing.assert_close(recorder.zs[1][0], (plain + 1) * 2)


def test_the_inner_observation_ends_before_the_outer(model):
    outer, inner = Recorder(), Recorder()
    with torch.no_grad(), observe(model, outer):
        with observe(model, inner):
            model(input_ids=ids())
        model(input_ids=ids())
    assert len(outer.contexts) == 2
    assert [context.index for context in outer.contexts] == [0, 1]
    assert len(inner.contexts) == 1


def test_observations_may_end_in_any_order(model):
    before = traces(model)
    first, second = observe(model, Recorder()), observe(model, Recorder())
    first.__enter__()
    second.__enter__()
    first.__exit__()
    with torch.no_grad():
        model(input_ids=ids())
    second.__exit__()
    assert len(first.instruments[0].contexts) == 0
    assert len(second.instruments[0].contexts) == 1
    assert traces(model) == before


def test_two_models_interleaved():
    one, two = build("llama"), build("gpt2")
    seen_one, seen_two, inside = Recorder(), Recorder(), []

    def ask_the_other(call: Any) -> torch.Tensor:
        if call.layer == 0:
            inside.append(two(input_ids=ids(5)).logits)
        return call.z

    with torch.no_grad():
        expected_one, expected_two = one(input_ids=ids()).logits, two(input_ids=ids(5)).logits
        with observe(one, seen_one, Change(ask_the_other)), observe(two, seen_two):
            two(input_ids=ids(5))
            logits = one(input_ids=ids()).logits
    torch.testing.assert_close(logits, expected_one, rtol=0, atol=1e-4)
    torch.testing.assert_close(inside[0], expected_two, rtol=0, atol=1e-4)
    assert len(seen_one.contexts) == 1
    assert len(seen_two.contexts) == 2
    assert seen_two.calls[0].attention.q.shape[2] == 5


def test_a_model_in_each_thread():
    models = [build("llama", seed=i) for i in range(3)]
    batches = [padded(texts(8 + i, 5 + i, seed=i)) for i in range(3)]
    alone, together = [Recorder() for _ in models], [Recorder() for _ in models]
    for recorder, model, batch in zip(alone, models, batches, strict=True):
        with torch.no_grad(), observe(model, recorder):
            model(**batch)
    failures: list[BaseException] = []

    def work(i: int) -> None:
        try:
            for _ in range(4):
                with torch.no_grad(), observe(models[i], together[i]):
                    models[i](**batches[i])
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert not forward._ACTIVE
    for one, other in zip(alone, together, strict=True):
        assert len(other.contexts) == 4
        for layer, call in one.calls.items():
            got = other.calls[layer].reductions
            torch.testing.assert_close(got.column_sums, call.reductions.column_sums, rtol=1e-5, atol=1e-6)


def test_another_thread_may_run_the_model(model):
    """As `generate` with a streamer does."""
    recorder = Recorder()
    with observe(model, recorder):
        thread = threading.Thread(target=lambda: model(input_ids=ids()))
        thread.start()
        thread.join()
    assert len(recorder.contexts) == 1
    assert len(recorder.calls) == 2


def test_a_wrapper_put_on_in_the_meantime_stays(model):
    decoder = model.model
    observation = observe(model, Recorder())
    observation.__enter__()
    watched = decoder.forward
    decoder.forward = lambda *args, **kwargs: watched(*args, **kwargs)
    observation.__exit__()
    logits = model(input_ids=ids()).logits
    assert len(observation.instruments[0].contexts) == 0
    del decoder.forward
    torch.testing.assert_close(model(input_ids=ids()).logits, logits)


def test_a_forward_that_accelerate_has_wrapped(model):
    """A model cut over devices has its own forward on every module: it is called, and put back."""
    add_hook_to_module(model.model, ModelHook())
    own, recorder = model.model.forward, Recorder()
    with torch.no_grad(), observe(model, recorder):
        model(input_ids=ids())
    assert model.model.forward is own
    assert len(recorder.contexts) == 1


def test_inference_mode(model):
    watchers = (Spectrum(k=2), Profile(), HeadOutputs(), Activations(), ScaleHeads("L0H0", 0.5))
    with torch.inference_mode(), observe(model, *watchers) as inside:
        model(input_ids=ids())
    with torch.no_grad(), observe(model, *(Spectrum(k=2), Profile(), ScaleHeads("L0H0", 0.5))) as outside:
        model(input_ids=ids())
    for name in ("spectrum", "profile"):
        xr.testing.assert_allclose(inside[name], outside[name])


def test_what_load_gives(model):
    loaded = load(model)
    with observe(loaded, Spectrum(k=2)) as seen:
        loaded(input_ids=ids())
    assert seen["spectrum"].sizes["example"] == 1


def test_nothing_keeps_the_model_alive():
    model = build("llama")
    gone = weakref.ref(model)
    with torch.no_grad(), observe(model, Spectrum(), Profile(), Activations()):
        model(input_ids=ids())
    del model
    gc.collect()
    assert gone() is None


def test_layers_called_by_hand_are_plain(model):
    """Inside the `with`, but outside any pass of the decoder."""
    recorder = Recorder()
    hidden = torch.randn(1, 5, 48)
    embeddings = model.model.rotary_emb(hidden, torch.arange(5)[None])
    with torch.no_grad():
        expected = model.model.layers[0](hidden, position_embeddings=embeddings)
        with observe(model, recorder):
            got = model.model.layers[0](hidden, position_embeddings=embeddings)
    torch.testing.assert_close(got, expected)
    assert recorder.contexts == []


def test_no_observation_changes_a_shared_model():
    """The models that tests share are still as they were built, but for the hooks that transformers leaves itself."""
    shared, fresh = tiny("llama"), build("llama")
    for one in (shared, fresh):
        one(torch.tensor([[5, 6, 7]]), output_hidden_states=True)
    assert traces(shared) == traces(fresh)


def test_results_by_instrument_also_where_names_are_shared(model):
    one, other = Spectrum(k=2), Spectrum(k=3)
    with torch.no_grad(), observe(model, one, other) as seen:
        model(input_ids=ids())
    assert (seen[one].sizes["rank"], seen[other].sizes["rank"]) == (2, 3)
    with pytest.raises(SeamError, match="this Spectrum is not part of this observation"):
        seen[Spectrum(k=2)]
    with pytest.raises(SeamError, match="2 instruments are named 'spectrum'"):
        seen["spectrum"]


def test_run_is_observe_over_texts():
    hf, tokenizer = tiny_model(layers=2)
    model = load(hf, tokenizer=tokenizer)
    texts = ["the old river", "a door in the wall"]
    with torch.no_grad(), observe(model, Spectrum(k=2)) as expected:
        for text in texts:
            model(**model.encode(text))
    xr.testing.assert_identical(run(model, texts, Spectrum(k=2))["spectrum"], expected["spectrum"])
    alone = run(model, texts[0], ScaleHeads("L0H0", 0.0), HeadOutputs())
    assert alone.passes == 1 and not alone["outputs"].z.sel(layer=0, head=0).any()
