"""Which families, which versions of transformers, which quantisations? Every cell of docs/support.md is measured.

    python benchmarks/support.py                   every family in float32, under the installed transformers
    python benchmarks/support.py --in nf4,int8     the families that can be read, quantised (needs the libraries)
    python benchmarks/support.py --only llama,opt  some families; the other rows of the page stay
    python benchmarks/support.py --page            only writes the page again

Run it in several environments: columns are kept in support.json, from which the page is made, and those of other versions and
quantisations stay.

A family is a model type of transformers' mappings of causal language models, and of models that write text from images. Each
is built tiny and random from its own config class, shrunken by the names of its sizes alone. What cannot be built that way,
or does not run, is listed as not tried. Weights inside the layers are five times those that transformers draws, so that
attention rows are neither even nor one-hot.

A cell is `headwise.check`: "ok" with the largest error of its lines (statistics, rows and head outputs are compared with the
family's own eager attention weights in float64), or the sentence of the refusal.
"""

from __future__ import annotations

import argparse
import copy
import gc
import json
import os
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText
from transformers.models.auto import modeling_auto
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from headwise.core.errors import HeadwiseError
from headwise.model.library_calls import silence_transformers
from headwise.seam import check

RESULTS = Path(__file__).with_name("support.json")
PAGE = Path(__file__).parents[1] / "docs" / "support.md"
MAX_PARAMETERS = 30_000_000
VOCABULARY = 131
SPREAD = 5.0
PLAIN = "float32"
NOT_TRIED = "not tried: "

SIZES: dict[str, Any] = {  # by name; a config gets those that it has
    "hidden_size": 64, "d_model": 64, "n_embd": 64, "dim": 64, "embed_dim": 64,
    "intermediate_size": 96, "ffn_dim": 96, "n_inner": 96, "encoder_ffn_dim": 96, "decoder_ffn_dim": 96,
    "moe_intermediate_size": 32, "shared_expert_intermediate_size": 32, "expert_ffn_hidden_size": 32, "ffn_hidden_size": 96,
    "num_hidden_layers": 2, "num_layers": 2, "n_layer": 2, "depth": 2, "encoder_layers": 2, "decoder_layers": 2,
    "num_attention_heads": 4, "n_head": 4, "num_heads": 4, "encoder_attention_heads": 4, "decoder_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 16, "global_head_dim": 16, "attention_head_dim": 16,
    "vocab_size": VOCABULARY, "vocab_size_per_layer_input": VOCABULARY, "hidden_size_per_layer_input": 16,
    "max_position_embeddings": 128, "n_positions": 128, "sliding_window": 8, "attention_window_size": 8,
    "num_experts": 4, "num_local_experts": 4, "n_routed_experts": 4, "moe_num_experts": 4,
    "num_experts_per_tok": 2, "moe_topk": 2, "moe_k": 2, "top_k_experts": 2, "n_shared_experts": 1, "n_group": 2,
    "topk_group": 1, "first_k_dense_replace": 1, "num_kv_shared_layers": 0, "num_nextn_predict_layers": 0,
    "q_lora_rank": 12, "kv_lora_rank": 16, "qk_nope_head_dim": 8, "qk_rope_head_dim": 8, "v_head_dim": 12,
    "linear_num_key_heads": 2, "linear_num_value_heads": 2, "linear_key_head_dim": 8, "linear_value_head_dim": 8,
    "state_size": 4, "mamba_d_state": 4, "ssm_state_size": 4, "mamba_d_head": 16, "mamba_n_heads": 8, "mamba_head_dim": 16,
    "mamba_num_heads": 8, "mamba_n_groups": 1, "n_groups": 1, "lru_width": 64, "time_step_rank": 4, "conv_dim": 64,
    "rotary_dim": 8, "word_embed_proj_dim": 64, "query_pre_attn_scalar": 16, "block_dim": 64, "block_ff_dim": 96,
    "image_size": 16, "patch_size": 8, "projection_dim": 64, "out_hidden_size": 64, "num_image_tokens": 4, "embedding_size": 64,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "image_token_id": 5, "image_token_index": 5, "video_token_id": 6,
    "tie_word_embeddings": False, "attention_dropout": 0.0,
}  # fmt: skip
SECTIONS = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 3, 3]}  # of half a head's width
WIDE = {name: 128 for name, value in SIZES.items() if value == 96}  # quantised in blocks of 64
VARIANTS: tuple[dict[str, Any], ...] = (
    {},
    {"num_key_value_heads": 4},
    {"head_dim": 16},
    {"head_dim": 8, "num_key_value_heads": 4},  # latent attention, whose head_dim is that of its rotated part
    {"num_hidden_layers": 4, "num_layers": 4},
    {"rope_parameters": SECTIONS},
)


# ---- tiny models --------------------------------------------------------------------------------------------------


def families() -> list[str]:
    """The model types that transformers can build as language models, in alphabetical order."""
    names = {
        *modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
        *modeling_auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES,
    }
    return sorted(names & set(CONFIG_MAPPING.keys()))


def tiny_config(family: str, changes: dict[str, Any]) -> Any:
    """The config of a family with every size that has a known name made small."""
    return CONFIG_MAPPING[family](**_small(CONFIG_MAPPING[family](), changes))


def _small(config: Any, changes: dict[str, Any]) -> dict[str, Any]:
    there = {name for name in SIZES if getattr(config, name, None) is not None}
    there |= {name for name in changes if name in vars(config)}
    fixed = {name for name in there if isinstance(getattr(type(config), name, None), property)}
    sizes = {name: copy.deepcopy(value) for name, value in {**SIZES, **changes}.items() if name in there - fixed}
    for name, value in vars(config).items():
        if hasattr(value, "to_dict") and name != "quantization_config":
            sizes[name] = {"model_type": value.model_type, **_small(value, changes)}
        elif isinstance(value, dict) and "mrope_section" in value:
            sizes[name] = {**value, "mrope_section": SECTIONS["mrope_section"]}
    return sizes | _kinds(config, sizes)


def _kinds(config: Any, sizes: dict[str, Any]) -> dict[str, Any]:
    """Lists with one entry per layer: one layer of each kind, twice. Hybrids that leave it open get both of theirs."""
    found: dict[str, Any] = {}
    if "attn_layer_period" in vars(config):
        return {"attn_layer_period": 2, "attn_layer_offset": 1, "num_hidden_layers": 4}
    if "attn_layer_indices" in vars(config):
        return {"attn_layer_indices": [1, 3], "num_hidden_layers": 4}
    for sign, kind, attention in (("conv_L_cache", "conv", "full_attention"), ("mamba_d_state", "mamba", "attention")):
        name = next((one for one in ("layer_types", "layers_block_type") if one in vars(config)), None)
        if sign in vars(config) and name is not None and len(set(vars(config)[name] or ())) < 2:
            return {name: [kind, attention] * 2, "num_hidden_layers": 4}
    for name, value in vars(config).items():
        if isinstance(value, list | tuple) and len(value) == getattr(config, "num_hidden_layers", None):
            kinds = list(dict.fromkeys(value)) if all(isinstance(one, str | int) for one in value) else list(value[:2])
            found[name] = kinds * (4 // len(kinds)) if len(kinds) < 4 else kinds
    lengths = {len(value) for value in found.values()}
    if not found:
        return {}
    layers = max(lengths)
    return {name: (value * layers)[:layers] for name, value in found.items()} | {"num_hidden_layers": layers}


def build(family: str, **sizes: Any) -> Any:
    """A tiny random model of a family, or the reason why there is none."""
    reasons = []
    for changes in VARIANTS:
        try:
            with silence_transformers(), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return _built(tiny_config(family, sizes | changes))
        except Exception as error:  # a family's own code
            reasons.append(_first_line(error))
    return reasons[0]


def _built(config: Any) -> Any:
    auto = AutoModelForCausalLM if type(config) in AutoModelForCausalLM._model_mapping else AutoModelForImageTextToText
    with torch.device("meta"):
        size = sum(parameter.numel() for parameter in auto.from_config(config).parameters())
    if size > MAX_PARAMETERS:
        raise ValueError(f"its smallest model has {size:,} parameters")
    torch.manual_seed(0)
    model = auto.from_config(config).eval().float()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim >= 2 and "embed" not in name:
                parameter.mul_(SPREAD)
        ids = torch.arange(7, 19)[None]
        logits = model(input_ids=ids, attention_mask=torch.ones_like(ids)).logits
    if not bool(torch.isfinite(logits).all()):
        raise ValueError("its random weights overflow")
    return model


def _first_line(error: BaseException) -> str:
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0][:160]}" if text else type(error).__name__


# ---- quantisations ------------------------------------------------------------------------------------------------


def _bitsandbytes(**options: Any) -> Any:
    return transformers.BitsAndBytesConfig(**options)


def _torchao(name: str, **options: Any) -> Any:
    import torchao.quantization as torchao

    return transformers.TorchAoConfig(quant_type=getattr(torchao, name)(**options))


QUANTISATIONS: dict[str, tuple[str, Callable[[], Any]]] = {  # name -> library, and the config to load with
    "nf4": ("bitsandbytes", lambda: _bitsandbytes(
        load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch.float32)),
    "int8": ("bitsandbytes", lambda: _bitsandbytes(load_in_8bit=True)),
    "int8wo": ("torchao", lambda: _torchao("Int8WeightOnlyConfig")),
    "quanto4": ("optimum-quanto", lambda: transformers.QuantoConfig(weights="int4")),
}  # fmt: skip


def quantised(model: Any, name: str) -> Any:
    """The model, quantised while it is loaded again."""
    with tempfile.TemporaryDirectory() as folder, silence_transformers(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.save_pretrained(folder)
        config = AutoConfig.from_pretrained(folder)
        auto = (
            AutoModelForCausalLM if type(config) in AutoModelForCausalLM._model_mapping else AutoModelForImageTextToText
        )
        return auto.from_pretrained(
            folder, quantization_config=QUANTISATIONS[name][1](), dtype=torch.float32, device_map="cpu"
        ).eval()


# ---- cells --------------------------------------------------------------------------------------------------------

Cell = dict[
    str, Any
]  # {"error": 1e-6} or {"refused": "sentence"}, and "layers": those with heads; or {"not_tried": why}


def measure(model: Any) -> Cell:
    """What `headwise.check` says about a model."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            report = check(model)
    except HeadwiseError as error:
        return {"refused": str(error)}
    wrong = [one for one in report.checks if not one.passed]
    errors = [one.error for one in report.checks if one.error is not None]
    if wrong:
        first = wrong[0]
        beyond = "" if first.error is None else f" (error {first.error:.0e})"
        what = "" if first.name == "layers" else f"{', '.join(one.name for one in wrong)}: "
        return {"refused": f"{what}{first.message}{beyond}"}
    return {"error": max(errors), "headless": len(report.refused)}


def cells(names: list[str], quantisations: list[str]) -> Iterator[tuple[str, str, Cell]]:
    """(family, quantisation, cell), as they are measured."""
    sizes = {} if quantisations == [PLAIN] else WIDE
    for family in names:
        model = build(family, **sizes)
        for name in quantisations:
            try:
                if isinstance(model, str):
                    cell: Cell = {"not_tried": model}
                else:
                    cell = measure(model if name == PLAIN else quantised(model, name))
            except Exception as error:  # of the library that quantises, or of the family's own code
                cell = {"not_tried": _first_line(error)}
            yield family, name, cell
        del model
        gc.collect()


# ---- results and page ---------------------------------------------------------------------------------------------

Results = dict[str, dict[str, Cell]]  # column -> family -> cell


def column(quantisation: str) -> str:
    """The name of a column: the version of transformers, and what the weights are."""
    return f"{transformers.__version__} {quantisation}"


def stored() -> Results:
    """What was measured so far, by all environments."""
    return json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}


def store(found: Results) -> None:
    """Merge and write."""
    merged = stored()
    for name, rows in found.items():
        merged[name] = dict(sorted({**merged.get(name, {}), **rows}.items()))
    ordered = {name: merged[name] for name in sorted(merged, key=_order)}
    whole = RESULTS.with_suffix(f".{os.getpid()}")
    whole.write_text(json.dumps(ordered, indent=1) + "\n", encoding="utf-8")
    whole.replace(RESULTS)


def _order(name: str) -> tuple[bool, tuple[int, ...], str]:
    version, quantisation = name.split(" ", 1)
    return quantisation != PLAIN, tuple(int(part) for part in version.split(".") if part.isdigit()), quantisation


def page(results: Results) -> str:
    """docs/support.md."""
    names = sorted({family for rows in results.values() for family in rows})
    tried = [
        family
        for family in names
        if any("not_tried" not in rows.get(family, {"not_tried": ""}) for rows in results.values())
    ]
    sentences: dict[str, int] = {}
    lines = [f"| family | {' | '.join(results)} |", f"|---|{'---|' * len(results)}"]
    for family in tried:
        row = [_words(family, rows.get(family), sentences) for rows in results.values()]
        lines.append(f"| {family} | {' | '.join(row)} |")
    counts = []
    for name, rows in results.items():
        ok = sum("error" in cell for cell in rows.values())
        refused = sum("refused" in cell for cell in rows.values())
        counts.append(f"| {name} | {ok} | {refused} | {len(rows) - ok - refused} |")
    untried = [(family, _reason(results, family)) for family in names if family not in tried]
    return "\n".join(
        [
            _HEADING,
            "| transformers and weights | ok | refused | not tried |\n|---|---|---|---|",
            *counts,
            "",
            "## Families",
            "",
            *lines,
            "",
            "## Refusals",
            "",
            *[f"{number}. {_escaped(sentence)}" for sentence, number in sentences.items()],
            "",
            "## Not tried",
            "",
            "Their tiny model could not be made automatically, or does not run on token ids alone:",
            "",
            *[f"- {family}: {_escaped(why)}" for family, why in untried],
            "",
        ]
    )


def _words(family: str, cell: Cell | None, sentences: dict[str, int]) -> str:
    if cell is None or "not_tried" in cell:
        return "–"
    if "refused" in cell:
        return f"no ({sentences.setdefault(_general(cell['refused'], family), len(sentences) + 1)})"
    return f"{cell['error']:.0e}" + (" *" if cell["headless"] else "")


def _general(sentence: str, family: str) -> str:
    """A refusal without the name of its family, so that equal ones share a line."""
    for name in (f"{family} ({family})", repr(family), family):
        sentence = sentence.replace(f"{name}:", "").replace(f"{name}_text", name).replace(name, "this family")
        sentence = sentence.replace("a this family model", "a model of this family")
    return sentence.strip()


def _reason(results: Results, family: str) -> str:
    return next(rows[family]["not_tried"] for rows in results.values() if family in rows)


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*").replace("_", "\\_")


_HEADING = """# Supported families

<!-- made by benchmarks/support.py -->

Every cell is measured: `headwise check` on a tiny random model of the family, built from its own config class, for each
version of transformers and each quantisation. The table is about architectures; `headwise check MODEL` checks your own
weights, in seconds.

- A number is the largest error of the check's lines. Attention statistics, rows of decode steps and head outputs are
  compared with the family's own eager attention weights in float64, logits with those of eager attention.
- An asterisk: some layers have no heads (linear attention, Mamba, convolutions). They are named and left out.
- "No" is a refusal; the number in brackets leads to its sentence below the table. A dash: not tried.

Families are the model types that `transformers` lists as causal language models, or as models that write text from
images, whose decoder is read. Encoders among them are refused as such; of families with an encoder and a decoder, the
decoder alone is built where transformers has it. Versions below 5.13 are shown for comparison; [the package needs
5.13](compatibility.md). The quantised columns (int8 and nf4 by bitsandbytes, int8wo by torchao, quanto4 by
optimum-quanto) are explained in [quantised models](tutorials/quantised.md); few families were measured in them.
"""


def main() -> int:
    """Run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--in", dest="quantisations", default=PLAIN, help=f"{PLAIN}, {', '.join(QUANTISATIONS)}")
    parser.add_argument("--only", default="", help="families")
    parser.add_argument("--page", action="store_true", help="measure nothing")
    options = parser.parse_args()
    quantisations = options.quantisations.split(",")
    names = [name for name in options.only.split(",") if name] or families()
    if quantisations != [PLAIN] and not options.only:
        plain = stored().get(column(PLAIN), {})
        names = [name for name in names if "error" in plain.get(name, {})]
    if not options.page:
        torch.set_num_threads(1)
        for family, quantisation, cell in cells(names, quantisations):
            print(family, quantisation, cell, flush=True)
            store({column(quantisation): {family: cell}})
    PAGE.write_text(page(stored()), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
