"""A tiny Llama as a GGUF file, and the byte-level vocabulary in it."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from headwise.model.tokens import _byte_alphabet

CHAT = (
    "{{ bos_token }}{% for m in messages %}[{{ m['role'] }}] {{ m['content'] }}</s>{% endfor %}"
    "{% if add_generation_prompt %}[assistant] {% endif %}"
)
SPECIAL = ["<pad>", "<s>", "</s>"]
MERGES = [("Ġ", "t"), ("Ġt", "h"), ("Ġth", "e"), ("Ċ", "Ċ"), ("Ġ", "Ġ"), ("c", "a"), ("ca", "t")]


def byte_vocabulary() -> list[str]:
    return [*SPECIAL, *_byte_alphabet(), *("".join(pair) for pair in MERGES)]


def write_gguf(path: Path, *, first: bool = False, leave_out: str = "", digits: bool = False, packed: str = "") -> Path:
    """A Llama of two layers as llama.cpp would pack it: float32, or matrices of a quantized type such as Q4_1."""
    import gguf

    out = gguf.GGUFWriter(path, "llama")
    out.add_block_count(2)
    out.add_context_length(128)
    out.add_embedding_length(32)
    out.add_feed_forward_length(48)
    out.add_head_count(4)
    out.add_head_count_kv(2)
    out.add_rope_dimension_count(8)
    out.add_rope_freq_base(100000.0)
    out.add_layer_norm_rms_eps(1e-5)
    tokens = [*byte_vocabulary(), *(["12"] if digits else [])]
    out.add_vocab_size(len(tokens))
    out.add_tokenizer_model("gpt2")
    out.add_tokenizer_pre("smollm")
    out.add_token_list(tokens)
    out.add_token_types([3] * len(SPECIAL) + [1] * (len(tokens) - len(SPECIAL)))
    out.add_token_merges([" ".join(pair) for pair in [*MERGES, *([("1", "2")] if digits else [])]])
    out.add_pad_token_id(0)
    out.add_bos_token_id(1)
    out.add_eos_token_id(2)
    out.add_add_bos_token(first)
    out.add_chat_template(CHAT)
    random = np.random.default_rng(0)
    shapes = {"token_embd.weight": (len(tokens), 32), "output_norm.weight": (32,)}
    for i in range(2):
        widths = {"attn_q": (32, 32), "attn_k": (16, 32), "attn_v": (16, 32), "attn_output": (32, 32)}
        widths |= {"ffn_gate": (48, 32), "ffn_up": (48, 32), "ffn_down": (32, 48)}
        widths |= {"attn_norm": (32,), "ffn_norm": (32,)}
        shapes |= {f"blk.{i}.{part}.weight": shape for part, shape in widths.items()}
    for part, shape in shapes.items():
        if part == leave_out:
            continue
        values = random.normal(size=shape).astype(np.float32)
        if packed and len(shape) == 2 and shape[1] % 32 == 0:
            kind = gguf.GGMLQuantizationType[packed]
            out.add_tensor(part, gguf.quants.quantize(values, kind), raw_dtype=kind)
        else:
            out.add_tensor(part, values)
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()
    return path
