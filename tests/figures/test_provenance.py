"""How a figure names its model: a hub id as it is, a path by its last part."""

from __future__ import annotations

import pytest

from headwise.figures.provenance import model_name, provenance_caption, with_model


def origin(name: str) -> dict:
    return {"model": {"id": name, "layers": 2, "heads": 1, "dtype": "float32"}, "seed": 0}


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("HuggingFaceTB/SmolLM2-135M-Instruct", "HuggingFaceTB/SmolLM2-135M-Instruct"),
        ("my-model", "my-model"),
        ("models/my-model", "models/my-model"),
        ("/home/jane/secret project/my-model", "my-model"),
        ("/home/jane/my-model/", "my-model"),
        ("/data/tiny.gguf", "tiny.gguf"),
        ("../../jane/my-model", "my-model"),
        ("~/my-model", "my-model"),
        (r"C:\Users\jane\my-model", "my-model"),
    ],
)
def test_no_figure_tells_where_somebody_keeps_a_model(name: str, shown: str) -> None:
    assert model_name(origin(name)) == shown
    assert provenance_caption(origin(name)).startswith(f"{shown} (2 layers, 1 head, float32)")
    assert "jane" not in provenance_caption(origin(name)) + with_model("Title", origin(name))


def test_an_unknown_model_is_not_named() -> None:
    assert model_name({}) == ""
    assert with_model("Title", {}) == "Title"


def test_a_version_that_nobody_knew_is_left_out() -> None:
    known = origin("m") | {"environment": {"headwise": "0.1.0"}}
    assert provenance_caption(known).endswith("seed 0 · headwise 0.1.0")
    for environment in ({"headwise": "not installed"}, {}):
        assert provenance_caption(origin("m") | {"environment": environment}).endswith("seed 0")


def test_the_footer_says_what_the_weights_were_dequantised_from() -> None:
    packed = origin("m")
    packed["model"]["dequantised_from"] = "Q4_1 GGUF"
    assert " · weights de-quantised from Q4_1 GGUF · " in provenance_caption(packed)
    assert "quantized" not in provenance_caption(origin("m"))
