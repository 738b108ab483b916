r"""Models, a tokenizer and texts made on the spot: random ones, and one whose heads are known by construction.

**The planted model** is a GPT-2 of three layers and six heads whose weights are set by hand, so that a study that looks
for a previous-token, induction, sink, duplicate-token, diagonal or uniform head has a right answer:

           H0         H1      H2       H3        H4         H5
    L0     .          sink    .        previous  .          .
    L1     duplicate  .       .        .         induction  .
    L2     .          .       uniform  .         .          diagonal              . is random and weak

The residual stream (384 wide) is cut into parts, and every head reads and writes whole parts:

    token 32 | position 32 | -position 32 | slot 32 | spare 256

- *token*: a code of +1 and -1, as many of one as of the other, for each token; two codes overlap by at most 0.4.
- *position*: cos(w i) and sin(w i) at 16 frequencies w. The overlap of two positions depends on their distance alone:
  1 at distance 0, within 0.4 at all others. One step back is a rotation, hence a matrix, the same at every position.
- *-position*: the same negated, so that the whole sums to nought.
- *slot*: empty at first. The previous-token head fills it with the token code of the token before.
- *spare*: where all other heads write a little noise that sums to nought.

So LayerNorm subtracts nothing and multiplies by a known number: the squared norm is 64 before layer 0 and 96 after it,
so the factor is sqrt(384 / 64) = sqrt 6 and then sqrt(384 / 96) = 2. Each head's query and key are chosen such that the
logit is (sharpness) x (overlap):

    previous    position one step back  . position             L0   writes the token code into the slot
    sink        position 0, constantly  . position             L0
    diagonal    position                . position             L2
    duplicate   token                   . token, less position . position, which shuts the token itself out      L1
    induction   token                   . slot                 L1   the token whose predecessor is this token
    uniform     nothing                                        L2

Induction is the real circuit of two layers: nothing in it knows how long ago the token was last seen. A head with
sharpness 50 leaves at most 320 exp(-50 x 0.6) of a row's weight elsewhere (the duplicate head, whose logits also hold
the term against itself, 320 exp(-12)). For a token not seen before the duplicate head falls back on the token itself,
and the induction head on whatever overlaps by chance. The MLPs are nought.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from tokenizers import Regex, Tokenizer, models, pre_tokenizers, processors
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

from headwise.corpora import Passage, Passages
from headwise.model import Model, load

# ---- the planted model ----------------------------------------------------------------------------------------------

PLANTED = {  # what is planted -> (layer, head)
    "sink": (0, 1),
    "previous": (0, 3),
    "duplicate": (1, 0),
    "induction": (1, 4),
    "uniform": (2, 2),
    "diagonal": (2, 5),
}

LAYERS, HEADS, WIDTH = 3, 6, 64  # of a head
HIDDEN = HEADS * WIDTH
CODE = 32  # width of a token code, and of a position code
POSITIONS, VOCABULARY = 320, 200
TOKEN, POSITION, MIRROR, SLOT = (slice(CODE * i, CODE * (i + 1)) for i in range(4))
SPARE = slice(4 * CODE, HIDDEN)
SQUARED_NORM = (64.0, 96.0, 96.0)  # of the residual stream before each layer
OVERLAP = 0.4  # two codes are at most this alike
SHARP, NOT_ITSELF = 50.0, 20.0  # logits; see the docstring
RANDOM_LOGIT = 2.0  # standard deviation of the logits of a head that nothing was planted in
NOISE = 0.003  # of what is written into the spare part


@dataclass(frozen=True)
class PlantedHead:
    """One head of a planted model."""

    kind: str
    """a key of `PLANTED`, or "two back", which looks like a previous-token head and is none"""
    layer: int
    head: int
    share: float | None = None
    """of its weight that goes to its target, where there is one; the rest stays on the token itself. None: all of it"""


def planted_profile_model() -> Model:
    """The model above, with `tiny_tokenizer`; where its heads are stands in `PLANTED`."""
    return planted_heads_model([PlantedHead(kind, *place) for kind, place in PLANTED.items()])


def planted_heads_model(
    heads: Sequence[PlantedHead], *, seed: int = 0, sharpness: float = SHARP, noise: float = 0.0
) -> Model:
    """The same model with other heads; the first previous-token head of layer 0 is the one that fills the slot.

    ``seed``: of the random heads and of the noise. Of heads with a share: ``sharpness``, and ``noise``, the standard
    deviation of what is added to their logits, a bilinear form of query and key drawn once per head, so that it is the
    same for the same two tokens.
    """
    config = GPT2Config(
        vocab_size=VOCABULARY, n_positions=POSITIONS, n_embd=HIDDEN, n_layer=LAYERS, n_head=HEADS, n_inner=8,
        pad_token_id=0, bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    hf = GPT2LMHeadModel(config).eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        hf.transformer.wte.weight.zero_()[:, TOKEN] = token_codes()
        hf.transformer.wpe.weight.zero_()[:, POSITION] = position_codes()
        hf.transformer.wpe.weight[:, MIRROR] = -position_codes()
        for block in hf.transformer.h:
            _plant_nothing(block, generator)
        for one in heads:
            q, k, constant = _query_and_key(one, sharpness)
            if noise and one.share is not None:
                key = CODE / 2 if k[POSITION, :CODE].any() else CODE  # squared norm of what it compares with
                spread = noise / math.sqrt(SQUARED_NORM[one.layer] * key)
                q[:, :CODE] += torch.randn(HIDDEN, CODE, generator=generator) * spread
            _plant(hf.transformer.h[one.layer].attn, one.head, SQUARED_NORM[one.layer], q, k, constant)
        for one in [one for one in heads if one.kind == "previous" and one.layer == 0][:1]:
            _write_previous_token(hf.transformer.h[0].attn, one.head)
    hf.config._name_or_path = "planted"
    return load(hf, tiny_tokenizer(VOCABULARY))


@cache
def token_codes() -> Tensor:
    """(token, CODE): balanced codes of +1 and -1, taken at random but for those too like an earlier one."""
    rng = random.Random(0)
    kept = torch.empty(0, CODE)
    while len(kept) < VOCABULARY:
        drawn = torch.tensor(rng.sample([1.0, -1.0] * (CODE // 2), CODE))
        if ((kept @ drawn).abs() <= OVERLAP * CODE).all():
            kept = torch.cat([kept, drawn[None]])
    return kept


@cache
def frequencies() -> Tensor:
    """(CODE / 2,): the first random draw whose positions are all unlike each other."""
    generator = torch.Generator().manual_seed(0)
    distances = torch.arange(1, POSITIONS, dtype=torch.float64)
    while True:
        drawn = torch.rand(CODE // 2, generator=generator, dtype=torch.float64) * math.pi
        if torch.cos(distances[:, None] * drawn).mean(dim=1).abs().max() <= OVERLAP:
            return drawn


def position_codes() -> Tensor:
    """(position, CODE): cosines, then sines; squared norm CODE / 2."""
    angles = torch.arange(POSITIONS, dtype=torch.float64)[:, None] * frequencies()
    return torch.cat([angles.cos(), angles.sin()], dim=1).float()


def step_back() -> Tensor:
    """(CODE, CODE): position_codes()[i] @ step_back() = position_codes()[i - 1]."""
    cos, sin = (torch.diag(f(frequencies())) for f in (torch.cos, torch.sin))
    return torch.cat([torch.cat([cos, -sin], dim=1), torch.cat([sin, cos], dim=1)]).float()


# A head's query and key maps, (HIDDEN, WIDTH), and a constant query, (WIDTH,), such that on the bare residual stream
# query . key is the wanted logit.


def _maps() -> tuple[Tensor, Tensor, Tensor]:
    return torch.zeros(HIDDEN, WIDTH), torch.zeros(HIDDEN, WIDTH), torch.zeros(WIDTH)


def _query_and_key(one: PlantedHead, sharpness: float) -> tuple[Tensor, Tensor, Tensor]:
    q, k, constant = _QUERY_AND_KEY[one.kind](SHARP if one.share is None else sharpness)
    if one.share is not None:  # the token itself gets the logit that leaves the target this share
        itself = math.log((1 - one.share) / one.share) + (0 if one.kind == "duplicate" else sharpness)
        q[POSITION, CODE:] = torch.eye(CODE) * itself / (CODE / 2)
        k[POSITION, CODE:] = torch.eye(CODE)
    return q, k, constant


def _positional(turn: Tensor, sharpness: float = SHARP) -> tuple[Tensor, Tensor, Tensor]:
    q, k, constant = _maps()
    q[POSITION, :CODE] = turn * sharpness / (CODE / 2)
    k[POSITION, :CODE] = torch.eye(CODE)
    return q, k, constant


def _sink(sharpness: float) -> tuple[Tensor, Tensor, Tensor]:
    q, k, constant = _positional(torch.zeros(CODE, CODE))
    constant[:CODE] = position_codes()[0] * sharpness / (CODE / 2)
    return q, k, constant


def _matching(key: slice, sharpness: float) -> tuple[Tensor, Tensor, Tensor]:
    q, k, constant = _maps()
    q[TOKEN, :CODE] = torch.eye(CODE) * sharpness / CODE
    k[key, :CODE] = torch.eye(CODE)
    return q, k, constant


def _duplicate(sharpness: float) -> tuple[Tensor, Tensor, Tensor]:
    q, k, constant = _matching(TOKEN, sharpness)
    q[POSITION, CODE:] = torch.eye(CODE) * -NOT_ITSELF / (CODE / 2)
    k[POSITION, CODE:] = torch.eye(CODE)
    return q, k, constant


_QUERY_AND_KEY = {
    "sink": _sink,
    "previous": lambda sharpness: _positional(step_back(), sharpness),
    "two back": lambda sharpness: _positional(step_back() @ step_back(), sharpness),
    "diagonal": lambda sharpness: _positional(torch.eye(CODE), sharpness),
    "duplicate": _duplicate,
    "induction": lambda sharpness: _matching(SLOT, sharpness),
    "uniform": lambda sharpness: _maps(),
}


def _columns(part: int, head: int) -> slice:
    """Where GPT-2's c_attn keeps the query (part 0), key (1) or value (2) of a head."""
    return slice(part * HIDDEN + head * WIDTH, part * HIDDEN + (head + 1) * WIDTH)


def _plant(attention: Any, head: int, squared_norm: float, q: Tensor, k: Tensor, constant: Tensor) -> None:
    """Set a head's query and key so that its logits are the wanted ones, LayerNorm and 1 / sqrt(width) undone."""
    factor = math.sqrt(HIDDEN / squared_norm)
    attention.c_attn.weight[:, _columns(0, head)] = q / factor * math.sqrt(WIDTH)
    attention.c_attn.bias[_columns(0, head)] = constant * math.sqrt(WIDTH)
    attention.c_attn.weight[:, _columns(1, head)] = k / factor


def _write_previous_token(attention: Any, head: int) -> None:
    """What the previous-token head moves: the token code, into the slot."""
    factor = math.sqrt(HIDDEN / SQUARED_NORM[0])
    attention.c_attn.weight[:, _columns(2, head)] = 0
    attention.c_attn.weight[TOKEN, _columns(2, head)][:, :CODE] = torch.eye(CODE) / factor
    attention.c_proj.weight[head * WIDTH : (head + 1) * WIDTH] = 0
    attention.c_proj.weight[head * WIDTH : head * WIDTH + CODE, SLOT] = torch.eye(CODE)


def _plant_nothing(block: Any, generator: torch.Generator) -> None:
    """Random heads that look a little here and there and write a little noise; no MLP."""
    for parameter in block.parameters():
        parameter.zero_()
    block.ln_1.weight.fill_(1)
    block.ln_2.weight.fill_(1)
    spread = math.sqrt(
        RANDOM_LOGIT / HIDDEN
    )  # the logits' deviation is HIDDEN x spread^2, since LayerNorm gives HIDDEN
    weight = torch.randn(HIDDEN, 3 * HIDDEN, generator=generator) * spread
    weight[SPARE] = 0  # nobody reads the noise
    block.attn.c_attn.weight.copy_(weight)
    noise = torch.randn(HIDDEN, SPARE.stop - SPARE.start, generator=generator) * NOISE
    block.attn.c_proj.weight[:, SPARE] = noise - noise.mean(dim=1, keepdim=True)


# ---- random models, a tokenizer, texts ------------------------------------------------------------------------------

SPECIAL = ["<pad>", "<s>", "</s>", "<unk>"]
PUNCTUATION = ["\n", *".,;:!?-()'\"=+/|"]
REGISTERS = {  # register -> its words, and how a line of it is written: w is any of them, the rest stands for itself
    "prose": (
        "the a of and in to was had it with old river house door light night rain garden letter winter stone road"
        " window slowly never again before after under walked waited opened left found her his they",
        "w w w w w , w w w w . w w w w w w w . w w w w ; w w w . \n",
    ),
    "dialogue": (
        "i you we me said asked yes no why where what when how know think want go come here there now please tell"
        " friend believe sorry today tomorrow maybe always",
        '" w w w ? " w w . \n " w , w w w w ! " w w . \n',
    ),
    "code": (
        "def return if else for while x y z n i j f g list print range len true false none self value index result"
        " import class try 0 1 2 10",
        "w w ( w , w ) : \n w = w ( w ) + w \n w w \n",
    ),
    "list": (
        "apples bread milk eggs salt flour butter sugar paper soap rope nails paint lamp tent map boots hat gloves"
        " knife cup two three four",
        "- w w \n - w w w \n - w \n",
    ),
    "table": (
        "name year north south east west total 1990 1995 2000 2005 2010 12 25 40 75 100 red green blue high low",
        "w | w | w | w \n",
    ),
    "german": (
        "der die das und ist nicht ein eine mit auf im haus stadt weg tag nacht wasser alt klein immer wieder sie er"
        " wir kam ging sah",
        "w w w w w , w w w w w . \n",
    ),
}


def tiny_tokenizer(size: int = VOCABULARY, *, first: bool = True) -> PreTrainedTokenizerFast:
    """Whole words, punctuation and line ends, `size` tokens in all; `first` puts <s> in front of every text."""
    words = dict.fromkeys(word for words, _ in REGISTERS.values() for word in words.split())
    tokens = [*SPECIAL, *PUNCTUATION, *words]
    tokens = [*tokens, *(f"word{i}" for i in range(len(tokens), size))][:size]
    backend = Tokenizer(models.WordLevel({token: i for i, token in enumerate(tokens)}, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Split(Regex(r"\n|\w+|[^\w\s]"), behavior="removed", invert=True)
    if first:
        backend.post_processor = processors.TemplateProcessing(
            single="<s> $A", pair="<s> $A $B", special_tokens=[("<s>", 1)]
        )
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token="<pad>", bos_token="<s>", eos_token="</s>", unk_token="<unk>"
    )


def tiny_passages(count: int, *, seed: int = 0, tokens: tuple[int, int] = (60, 160)) -> Passages:
    """Texts of the tokenizer's words, the registers in turn, of between so many tokens."""
    rng = random.Random(seed)
    items = []
    for index in range(count):
        register = list(REGISTERS)[index % len(REGISTERS)]
        words, line = REGISTERS[register]
        length = rng.randint(*tokens)
        pieces: list[str] = []
        while len(pieces) < length:
            pieces += [rng.choice(words.split()) if piece == "w" else piece for piece in line.split(" ")]
        text = " ".join(pieces[:length])
        items.append(Passage(f"{register}-{index:02d}", text, register, "de" if register == "german" else "en"))
    return Passages("tiny passages", tuple(items))


def tiny_model(
    family: str = "llama", layers: int = 3, heads: int = 4, kv_heads: int = 2, seed: int = 0
) -> tuple[Any, PreTrainedTokenizerFast]:
    """A random model of any family, with a tokenizer that fits. Its heads differ, but mean nothing."""
    config = AutoConfig.for_model(
        family,
        num_hidden_layers=layers, num_attention_heads=heads, num_key_value_heads=kv_heads,
        hidden_size=16 * heads, head_dim=16, intermediate_size=64, vocab_size=VOCABULARY,
        max_position_embeddings=POSITIONS, initializer_range=0.15,
        pad_token_id=0, bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        hf = AutoModelForCausalLM.from_config(config)
    return hf.eval(), tiny_tokenizer(VOCABULARY)


def save_tiny(folder: str | Path, **options: Any) -> Path:
    """`tiny_model` as a folder that `headwise build FOLDER` takes."""
    folder = Path(folder)
    hf, tokenizer = tiny_model(**options)
    hf.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
