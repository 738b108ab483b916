"""The check itself must fail when something is wrong: mistakes are planted one at a time."""

import json
from dataclasses import replace
from typing import Any

import pytest
import torch
import transformers
from families import build, texts, tiny
from transformers import AttentionInterface, AttentionMaskInterface, AutoModelForCausalLM
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from headwise.kernels import blocked
from headwise.kernels.rows import row_logs, row_output
from headwise.model.library_calls import silence_transformers
from headwise.seam import Structure, check, forward, mask, outputs, projection, verify
from headwise.seam.interface import routed
from headwise.seam.mask import parse_mask

EPS = 1e-3


def failed(model: Any) -> set[str]:
    return {one.name for one in check(model).checks if not one.passed}


def test_a_report_can_be_read_by_a_program():
    report = check(tiny("jamba"))
    found = json.loads(json.dumps(report.to_dict()))
    assert found["passed"] is True
    assert found["model"] == "jamba"
    assert found["refused"] == {"0": "mamba: no heads", "2": "mamba: no heads"}
    assert [one["name"] for one in found["checks"]] == [
        "layers",
        "plain",
        "logits",
        "reductions",
        "heads",
        "causality",
        "padding",
        "decoding",
    ]
    assert all(one["error"] < one["limit"] for one in found["checks"] if one["error"] is not None)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_passes(dtype):
    report = check(build("llama").to(dtype))
    assert report.passed, report


def test_a_structure_or_a_model_will_do():
    assert check(Structure(tiny("llama"))).passed


@pytest.mark.parametrize(
    "field", ["column_sums", "entropy", "log_diagonal", "distance_variance", "row_max", "top_weights"]
)
def test_a_wrong_reduction_is_found(monkeypatch, field):
    def wrong(attention: Any, request: Any, logs: Any) -> Any:
        out = blocked.reduce(attention, request)
        setattr(out, field, getattr(out, field) * (1 + EPS) + EPS)
        return out

    monkeypatch.setattr(forward, "reduce", wrong)
    assert "reductions" in failed(tiny("llama"))


def test_a_wrong_output_is_found(monkeypatch):
    own = outputs.attention_output

    def wrong(*args: Any) -> Any:
        z, lse = own(*args)
        return z * 1.01, lse

    monkeypatch.setattr(forward, "attention_output", wrong)
    assert "logits" in failed(tiny("llama"))


@pytest.fixture
def with_attention(monkeypatch) -> Any:
    """A family's model whose own attention is another function, with SDPA's masks."""

    def make(family: str, attend: Any, **changes: Any) -> Any:
        for interface, function in ((AttentionInterface, attend), (AttentionMaskInterface, sdpa_mask)):
            monkeypatch.setitem(interface._global_mapping, "planted", function)
        model = build(family, **changes)
        model.config._attn_implementation_internal = "planted"
        return model

    return make


def without_cap(*args: Any, softcap: float, **options: Any) -> Any:
    return sdpa_attention_forward(*args, **options)


def slightly_wrong(*args: Any, **options: Any) -> Any:
    return sdpa_attention_forward(*args, **options)[0] * 1.01, None


def test_a_model_whose_own_attention_drops_the_cap(with_attention):
    """What transformers before 5.21 does under SDPA: named by the argument that is dropped, not by the family."""
    report = {one.name: one for one in check(with_attention("gemma2", without_cap)).checks}
    assert [name for name, one in report.items() if not one.passed] == ["plain"]
    assert report["plain"].error > 0.1
    said = report["plain"].message
    assert f"(planted, transformers {transformers.__version__}) ignores softcap=5.0, so outside of observe" in said
    assert said.endswith("load it with attn_implementation='eager', or upgrade transformers")


def test_a_model_whose_own_attention_is_wrong(monkeypatch, with_attention):
    """It does not excuse an observed output that is wrong as well."""
    model = with_attention("llama", slightly_wrong)
    assert failed(model) == {"plain"}
    monkeypatch.setattr(forward, "attention_output", lambda *args: (outputs.attention_output(*args)[0] * 1.01, None))
    report = {one.name: one for one in check(model).checks}
    assert "differs from eager attention, so outside of observe" in report["plain"].message
    assert not report["logits"].passed


def test_an_attention_with_masks_of_its_own_is_not_compared(monkeypatch, with_attention):
    model = with_attention("llama", slightly_wrong)
    monkeypatch.setitem(AttentionMaskInterface._global_mapping, "planted", lambda *args, **options: None)
    plain = check(model).checks[1]
    assert plain.passed and plain.error is None
    assert plain.message == "not compared: the attention 'planted' takes masks that eager attention does not"


@pytest.mark.parametrize("family", ["gemma2", "mistral", "gpt_oss"])
def test_the_installed_transformers_is_judged_rightly(family):
    """As transformers would load it: `plain` passes if and only if the model computes by itself what eager attention does."""
    config = tiny(family).config
    with silence_transformers():
        model = AutoModelForCausalLM.from_config(type(config).from_dict(config.to_dict())).eval()
    model.load_state_dict(tiny(family).state_dict())
    ids = texts(21)[0][None]
    with torch.no_grad():
        found, expected = model(input_ids=ids).logits, tiny(family)(input_ids=ids).logits
        if tiny(family).config._attn_implementation != "eager":
            with routed(tiny(family), "eager"):
                expected = tiny(family)(input_ids=ids).logits
    right = float((found - expected).abs().max() / expected.std()) < 1e-3
    assert ({one.name: one for one in check(model).checks}["plain"].passed) == right


def test_a_lost_mask_is_found(monkeypatch):
    """A window that the model keeps and the reductions forget."""
    monkeypatch.setattr(forward, "parse_mask", lambda *args: replace(parse_mask(*args), window=None))
    assert failed(tiny("mistral")) == {"reductions"}


def test_lost_padding_is_found(monkeypatch):
    """Padding tokens that are taken for real ones."""
    monkeypatch.setattr(
        mask, "_real_tokens", lambda mask, *sizes: (torch.ones(sizes[:2]).bool(), torch.zeros(sizes[0]))
    )
    report = check(tiny("llama"))
    assert [one.name for one in report.checks] == ["layers"]
    assert "hides tokens that no argument of its decoder marks as padding" in report.checks[0].message


def test_a_slice_of_the_output_in_place_of_the_input_is_found(monkeypatch):
    """W_O with its heads in another order: the sum over heads is wrong."""
    own = projection._oriented
    monkeypatch.setattr(projection, "_oriented", lambda *args: own(*args).flip(0))
    assert failed(tiny("llama")) == {"heads"}


def test_a_layer_without_effect_is_found():
    model = build("llama")
    with torch.no_grad():
        model.model.layers[1].self_attn.o_proj.weight.zero_()
    report = {one.name: one for one in check(model).checks}
    assert not report["causality"].passed
    assert report["causality"].message == "switching off all heads of layer 1 changes no logit"


def test_damaged_weights_are_named():
    model = build("llama")
    with torch.no_grad():
        model.model.layers[0].mlp.up_proj.weight.fill_(torch.nan)
    report = {one.name: one for one in check(model).checks}
    assert "the model's logits are not finite" in report["logits"].message


def test_every_reduction_is_checked():
    """A new reduction must be added to the check."""
    wanted = verify.everything(torch.zeros(2, 9, dtype=torch.long))
    asked = {name for name, field in wanted.__dataclass_fields__.items() if field.init}
    of_a_step = {"row_logs", "row_statistics"}  # checked by `decoding`
    assert all(getattr(wanted, name) for name in asked - {"count_above"} - of_a_step)


def test_a_wrong_row_of_a_decode_step_is_found(monkeypatch):
    monkeypatch.setattr(forward, "row_logs", lambda *args: row_logs(*args) + EPS)
    assert failed(tiny("llama")) == {"decoding"}


def test_a_wrong_output_of_a_decode_step_is_found(monkeypatch):
    monkeypatch.setattr(forward, "row_output", lambda weights, v: row_output(weights, v) * (1 + EPS))
    assert failed(tiny("llama")) == {"decoding"}


@pytest.mark.parametrize("family", ["gpt2", "mistral", "gemma2", "gemma3_text", "gpt_oss", "jamba"])
def test_steps_on_a_cache_pass_in_every_kind_of_family(family):
    report = check(tiny(family))
    assert report.passed, report
    assert report.checks[-1].error is not None


def test_logs_that_eager_cannot_hold_are_no_error():
    """Logits of hundreds: eager's float32 weights underflow to 0, the streamed log does not."""
    model = build("llama")
    with torch.no_grad():
        for layer in model.model.layers:
            layer.self_attn.q_proj.weight.mul_(60)
    report = {one.name: one for one in check(model).checks}
    assert report["reductions"].passed, report["reductions"]
