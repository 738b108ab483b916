"""What a user may say about devices, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from headwise.core.errors import ModelError
from headwise.model import ModelCard, load
from headwise.model.placement import DevicePlacement, read_memory


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ("cpu=8GiB", {"cpu": 8 * 2**30}),
        ("cpu=500MB, 0=20 GiB ,cuda:1=1.5G", {"cpu": 500 * 10**6, 0: 20 * 2**30, 1: 1_500_000_000}),
        ({0: "2KiB", "cpu": 12}, {0: 2048, "cpu": 12}),
        (None, None),
    ],
)
def test_memory(given: Any, found: Any) -> None:
    assert read_memory(given) == found


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("cpu=8Gib/s", "gives 'cpu' the size '8Gib/s'; write sizes with their unit, as in cpu=8GiB,0=20GiB"),
        ("cpu", "gives 'cpu' the size ''; write sizes with their unit"),
        ("cpu=8", "gives 'cpu' the size '8'; write sizes with their unit"),
        ("cpu=1.2.3GiB", "gives 'cpu' the size '1.2.3GiB'"),
        ("foo", "--memory .* names the device 'foo'; devices are cpu and the numbers of GPUs, as in cpu=8GiB,0=20GiB"),
        ("", "names no device; write it as cpu=8GiB,0=20GiB"),
    ],
)
def test_memory_that_is_none(given: str, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        read_memory(given)


def test_a_limit_or_a_folder_alone_means_auto(tmp_path: Path) -> None:
    assert DevicePlacement.of(max_memory="cpu=1GiB").arguments() == {"device_map": "auto", "max_memory": {"cpu": 2**30}}
    assert DevicePlacement.of(offload_folder=tmp_path).arguments() == {
        "device_map": "auto",
        "offload_folder": str(tmp_path),
    }
    assert not DevicePlacement.of() and DevicePlacement.of().arguments() == {"device_map": None}


def test_where_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert (
        DevicePlacement.of({"a": "cpu", "b": "disk"}).on_cpu
        and not DevicePlacement.of({"a": "cpu", "b": "cuda:1"}).on_cpu
    )
    assert (
        DevicePlacement.of(max_memory="cpu=1GiB").on_cpu and not DevicePlacement.of(max_memory="cpu=1GiB,0=1GiB").on_cpu
    )
    assert DevicePlacement.of({"a": "cuda:1"}).device_map == {"a": 1}


def test_a_map_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "map.json"
    file.write_text(json.dumps({"": "cpu"}))
    assert DevicePlacement.of(file).device_map == DevicePlacement.of(str(file)).device_map == {"": "cpu"}
    file.write_text("[1]")
    with pytest.raises(ModelError, match=r"map\.json is not a device map: it must map modules to devices"):
        DevicePlacement.of(file)
    with pytest.raises(ModelError, match="could not be read"):
        DevicePlacement.of(tmp_path / "none.json")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("automatic", "'automatic' is not a device map; use auto, balanced"),
        ({"": "tape"}, "puts '' on 'tape'; give the number of a GPU, cpu or disk"),
        ({"": 97}, "puts '' on GPU 97, and torch sees"),
        ({}, "is not a device map"),
    ],
)
def test_maps_that_are_none(given: Any, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        DevicePlacement.of(given)


def test_limits_go_with_auto_only() -> None:
    with pytest.raises(ModelError, match="limits --device-map auto"):
        DevicePlacement.of({"": "cpu"}, "cpu=1GiB")


def test_a_map_must_fit_the_model(make_config: Any, folder: Path) -> None:
    card = ModelCard.from_config(make_config(), "tiny")
    with pytest.raises(
        ModelError, match=r"names 'model\.layer\.0', and tiny has no such module; did you mean .*'model\.layers\.0'"
    ):
        DevicePlacement.of({"": "cpu", "model.layer.0": "disk"}).fit(card)
    with pytest.raises(ModelError, match=r"has no device for lm_head\.weight of"):
        load(folder, device_map={"model": "cpu"})
    with pytest.raises(
        ModelError, match=r"names 'lm_head\.weight', and tiny has no such module; did you mean 'lm_head'"
    ):
        DevicePlacement.of({"": "cpu", "lm_head.weight": "disk"}).fit(card)


def test_places_of_parts_are_put_side_by_side(make_config: Any) -> None:
    card = ModelCard.from_config(make_config(), "tiny")
    fitted = (
        DevicePlacement.of({"": "cpu", "model.layers.1": "disk", "model.layers.2.mlp": "disk"}).fit(card).device_map
    )
    assert fitted == {
        "model.embed_tokens": "cpu", "model.layers.0": "cpu", "model.layers.1": "disk", "model.layers.2.self_attn": "cpu",
        "model.layers.2.mlp": "disk", "model.layers.2.input_layernorm": "cpu",
        "model.layers.2.post_attention_layernorm": "cpu", "model.norm": "cpu", "model.rotary_emb": "cpu", "lm_head": "cpu",
    }  # fmt: skip
