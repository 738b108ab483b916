"""The decoder of a vision-language model: text alone, and heads that attend to image tokens."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForImageTextToText
from watchers import Call

from headwise.core.errors import SeamError
from headwise.instruments import Spectrum
from headwise.kernels import ReductionRequest
from headwise.seam import check, observe, routed

IMAGE = 5
SIZES = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
VISION = {"image_size": 16, "patch_size": 8, **SIZES}
IDS = torch.tensor([[1, 7, IMAGE, IMAGE, IMAGE, IMAGE, 20, 21, 22]])


def build(family: str, text: dict[str, Any], vision: dict[str, Any], **more: Any) -> Any:
    torch.manual_seed(0)
    settings = {"text_config": {"vocab_size": 64, **SIZES, **text}, "vision_config": {**VISION, **vision}, **more}
    model = AutoModelForImageTextToText.from_config(AutoConfig.for_model(family, **settings)).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim == 2 and "language" in name:
                parameter.mul_(10)
    return model


@pytest.fixture(scope="module")
def llava() -> Any:
    vision = {"model_type": "clip_vision_model", "projection_dim": 32}
    return build("llava", {"model_type": "llama"}, vision, image_token_id=IMAGE)


def test_the_decoder_is_found_and_the_vision_tower_is_left_out(llava):
    report = check(llava)
    assert report.passed, report
    assert report.checks[0].message.startswith("2 of 2 layers have heads")


def test_mass_on_image_tokens_is_that_of_the_family_s_own_attention(llava):
    found = {}
    image = IDS == IMAGE

    def keep(call: Any) -> None:
        found[call.layer] = call.reductions.key_weights["image"]

    given = {"input_ids": IDS, "pixel_values": torch.randn(1, 3, 16, 16)}
    with torch.no_grad(), observe(llava, Call(keep, lambda _: ReductionRequest(key_weights={"image": image}))):
        observed = llava(**given).logits
    with torch.no_grad(), routed(llava, "eager"):
        eager = llava(**given, output_attentions=True)
    torch.testing.assert_close(observed, eager.logits, rtol=1e-4, atol=1e-4)
    for layer, maps in enumerate(eager.attentions):
        torch.testing.assert_close(found[layer], maps[..., image[0]].sum(-1), rtol=1e-4, atol=1e-5)
        assert float(found[layer][..., :2].max()) < 1e-30  # before the image
        assert float(found[layer][..., 6:].min()) > 0
    with torch.no_grad():
        other = llava(input_ids=IDS, pixel_values=torch.zeros(1, 3, 16, 16)).logits
    assert float((other - observed).abs().max()) > 1e-3  # the image enters


def test_image_tokens_that_see_each_other_are_refused():
    """Gemma 3 is causal on text; inside an image its tokens attend in both directions."""
    vision = {"model_type": "siglip_vision_model"}
    text = {"model_type": "gemma3_text", "num_key_value_heads": 1, "head_dim": 16, "pad_token_id": 0}
    model = build("gemma3", text, vision, image_token_id=IMAGE, mm_tokens_per_image=4)
    assert check(model).passed
    given = {"input_ids": IDS, "pixel_values": torch.randn(1, 3, 16, 16), "token_type_ids": (IDS == IMAGE).long()}
    with torch.no_grad(), observe(model, Spectrum()), pytest.raises(SeamError, match="lets a token see later tokens"):
        model(**given)
