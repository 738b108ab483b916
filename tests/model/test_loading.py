from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from transformers import AutoModelForCausalLM, BertConfig, BertLMHeadModel, T5Config

from headwise.core.errors import DataError, ModelError
from headwise.model import Model, load


def rewrite(folder: Path, file: str = "config.json", **changes: Any) -> Path:
    path = folder / file
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    return folder


def test_a_folder(folder: Path, hf: Any) -> None:
    model = load(folder)
    assert isinstance(model, Model)
    assert model.id == str(folder)
    assert not model.hf.training
    assert model.hf.config._attn_implementation == "sdpa"
    ids = torch.tensor([[3, 4, 5]])
    assert torch.equal(model(input_ids=ids).logits, hf(ids).logits)
    assert load(str(folder)).identity() == model.identity()


def test_a_model_that_is_loaded_already(hf: Any, tokenizer: Any, folder: Path) -> None:
    hf.train()
    model = load(hf, tokenizer)
    assert model.hf is hf
    assert not hf.training
    assert model.tokens("cat") == ["cat"]
    assert model.identity()["digest"] == load(folder).identity()["digest"]
    assert load(model) is model
    assert load(hf, str(folder)).tokens("cat") == ["cat"]
    assert load(hf, dtype="bf16").dtype == torch.bfloat16


def test_half_precision_becomes_float32_on_a_cpu(hf: Any, tmp_path: Path) -> None:
    hf.to(torch.bfloat16).save_pretrained(tmp_path / "half")
    assert load(tmp_path / "half", device="cpu").dtype == torch.float32
    assert load(tmp_path / "half", device="cpu", dtype=torch.bfloat16).dtype == torch.bfloat16
    assert load(tmp_path / "half", device="cpu", dtype="fp16").dtype == torch.float16
    assert load(hf).dtype == torch.bfloat16


def test_device_map(folder: Path) -> None:
    pytest.importorskip("accelerate")
    model = load(folder, device_map="cpu")
    assert (model.device.type, model.dtype) == ("cpu", torch.float32)
    assert model(**model.encode("cat")).logits.shape == (1, 1, 300)


def test_other_arguments_go_through(folder: Path) -> None:
    assert load(folder, attn_implementation="eager").hf.config._attn_implementation == "eager"


def test_families_without_sdpa_are_loaded_eager(tmp_path: Path) -> None:
    sizes = {"num_hidden_layers": 2, "hidden_size": 32, "intermediate_size": 16, "num_attention_heads": 4}
    sizes |= {"num_key_value_heads": 2, "head_dim": 8, "vocab_size": 64, "num_local_experts": 2, "pad_token_id": 0}
    AutoModelForCausalLM.from_config(transformers.GptOssConfig(**sizes)).save_pretrained(tmp_path / "oss")
    assert load(tmp_path / "oss", dtype="float32").hf.config._attn_implementation == "eager"


def test_a_soft_capped_family_is_loaded_eager_by_every_transformers(tmp_path: Path) -> None:
    """Before 5.21, transformers would choose SDPA, which drops the cap: `generate` would answer for another model."""
    sizes = {"num_hidden_layers": 2, "hidden_size": 32, "intermediate_size": 16, "num_attention_heads": 4}
    sizes |= {"num_key_value_heads": 2, "head_dim": 8, "vocab_size": 64, "pad_token_id": 0}
    AutoModelForCausalLM.from_config(transformers.Gemma2Config(**sizes)).save_pretrained(tmp_path / "capped")
    model = load(tmp_path / "capped", dtype="float32")
    assert model.card.softcap and model.hf.config._attn_implementation == "eager"


def test_transformers_gets_its_voice_back(folder: Path) -> None:
    logging = transformers.utils.logging
    before = (logging.get_verbosity(), logging.is_progress_bar_enabled())
    load(folder)
    with pytest.raises(ModelError):
        load(folder / "nothing")
    assert (logging.get_verbosity(), logging.is_progress_bar_enabled()) == before


def test_loading_is_quiet(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    load(folder)
    assert capfd.readouterr() == ("", "")


def test_a_folder_without_a_tokenizer(folder: Path, hf: Any, tmp_path: Path) -> None:
    hf.save_pretrained(tmp_path / "bare")
    with pytest.raises(DataError, match="because its tokenizer could not be loaded"):
        load(tmp_path / "bare").encode("cat")
    assert load(tmp_path / "bare", folder).tokens("cat") == ["cat"]
    with pytest.raises(ModelError, match=r"There is no tokenizer in .*bare"):
        load(folder, tmp_path / "bare")


def test_an_empty_tokenizer_is_none(tmp_path: Path) -> None:
    config = transformers.GPT2Config(n_layer=2, n_embd=16, n_head=2, vocab_size=64)
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path / "gpt2")
    with pytest.raises(DataError, match=r"cannot encode text, because no tokenizer was found in .*gpt2"):
        load(tmp_path / "gpt2").encode("cat")


def test_no_such_place(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"There is no folder or file '/no/such/place'; check the path"):
        load("/no/such/place")
    with pytest.raises(ModelError, match=r"There is no folder or file './model.gguf'"):
        load("./model.gguf")
    with pytest.raises(
        ModelError, match=r"There is no folder 'a/b/c', and it cannot be a name on the hub; give a folder"
    ):
        load("a/b/c")
    with pytest.raises(
        ModelError, match=r"The folder .* has no config.json, so it does not contain a transformers model"
    ):
        load(tmp_path)
    with pytest.raises(ModelError, match=r"model.safetensors is not a GGUF file"):
        load(folder / "model.safetensors")


def test_not_in_the_cache_and_offline() -> None:
    message = (
        r"nobody/nothing is not in the local Hugging Face cache \(.*\), and the hub is switched off \(HF_HUB_OFFLINE"
    )
    with pytest.raises(ModelError, match=message):
        load("nobody/nothing")


@pytest.mark.parametrize("content", [b"", b"nonsense" * 40, None])
def test_damaged_weights(folder: Path, content: bytes | None) -> None:
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100] if content is None else content)
    with pytest.raises(ModelError, match=r"The weights of .* are damaged or incomplete \(.*\); copy or download them"):
        load(folder)


def test_no_weights(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    with pytest.raises(ModelError, match=r"has a config.json but no weights \(model.safetensors\)"):
        load(folder)
    (folder / "pytorch_model.bin").write_bytes(b"nonsense" * 40)
    with pytest.raises(ModelError, match=r"The weights of .* are damaged or incomplete"):
        load(folder)


def test_weights_that_do_not_cover_the_model(folder: Path) -> None:
    message = r"is incomplete: model.layers.3.input_layernorm.weight and 8 others are missing and would be random"
    with pytest.raises(ModelError, match=message):
        load(rewrite(folder, num_hidden_layers=4))


def test_weights_of_other_shapes(folder: Path) -> None:
    with pytest.raises(
        ModelError, match=r"have other shapes than its config.json says; use the config of these weights"
    ):
        load(rewrite(folder, intermediate_size=64))


def test_damaged_configs(folder: Path) -> None:
    with pytest.raises(ModelError, match=r"has a value that its architecture does not allow \(.*num_hidden_layers"):
        load(rewrite(folder, num_hidden_layers="many"))
    (folder / "config.json").write_text("{")
    with pytest.raises(ModelError, match=r"A JSON file of .* is not valid JSON"):
        load(folder)


def test_unknown_architectures_and_code(folder: Path) -> None:
    with pytest.raises(
        ModelError, match=r"does not know the architecture of .*; upgrade it with `pip install -U trans"
    ):
        load(rewrite(folder, model_type="sponge"))
    own = {"AutoConfig": "configuration_sponge.SpongeConfig", "AutoModelForCausalLM": "modeling_sponge.SpongeLM"}
    with pytest.raises(
        ModelError, match=r"comes with its own Python code, .*; read that code, then load it with trust"
    ):
        load(rewrite(folder, model_type="sponge", auto_map=own))


def test_not_a_decoder(folder: Path, tmp_path: Path) -> None:
    shutil.rmtree(folder)
    T5Config().save_pretrained(folder)
    with pytest.raises(ModelError, match=r"A 't5' model has an encoder and a decoder; Headwise reads decoder-only"):
        load(folder)
    BertConfig().save_pretrained(folder)
    with pytest.raises(
        ModelError, match=r"A 'bert' model is an encoder for masked tokens; Headwise reads decoder-only"
    ):
        load(folder)
    small = BertConfig(num_hidden_layers=1, hidden_size=8, num_attention_heads=2, intermediate_size=8, vocab_size=10)
    with pytest.raises(ModelError, match=r"A 'bert' model is an encoder"):
        load(BertLMHeadModel(small))
    transformers.ViTConfig().save_pretrained(folder)
    with pytest.raises(ModelError, match=r"The config of a 'vit' model does not give its vocabulary size"):
        load(folder)
    with pytest.raises(
        ModelError, match=r"A Linear is not a transformers model; give one, or the name or folder of one"
    ):
        load(torch.nn.Linear(2, 2))


def test_wrong_dtypes_and_devices(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(
        ModelError, match=r"'float31' is not a dtype for a model. Did you mean 'float32'\? Known: auto,"
    ):
        load(folder, dtype="float31")
    with pytest.raises(
        ModelError, match=r"The device 'toaster' cannot be used here \(.*\); use 'cpu', or a device that"
    ):
        load(folder, device="toaster")
    if not torch.cuda.is_available():
        with pytest.raises(ModelError, match=r"The device 'cuda' cannot be used here"):
            load(folder, device="cuda")
    with pytest.raises(
        ModelError, match=r"device puts the model on one device and device_map distributes it over several; give one"
    ):
        load(folder, device="cpu", device_map="auto")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ModelError, match=r"device_map needs the package accelerate; run `pip install accelerate`"):
        load(folder, device_map="auto")
