"""Steps of two made-up functions: activations in which known heads carry them, and a model in which known heads do them.

**Activations** (`planted_readings`): z of 6 layers x 5 heads, 8 wide, standard normal, but for the heads of `CARRIES`: each
adds, on the steps of its function, a vector of its own. No other head knows anything by itself; the mean over the heads
of a layer, which the joint probe sees next to each of them, knows a little in layers 0 to 3, and nothing in 4 and 5.

**The model** (`planted_steps_model`): the GPT-2 of `planted.py` with two more heads in its last layer, each of which looks
three tokens back. A step's prompt ends in "{source} \\n A :", so from the last token that is the source; one head turns
the sources of *alpha* into their targets and those of *beta* into nought, the other the other way round.

           alpha   beta
           L2H0    L2H3

An answer is one token. Without its head a function's answers are gone; without any other they stay.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import numpy as np
import xarray as xr
from planted import WIDTH
from planted_tasks import HEADS, planted_tasks, planted_tasks_model

from headwise.atlas import Provenance
from headwise.core.dims import EXAMPLE, HEAD, LAYER
from headwise.core.dims import WIDTH as ENTRIES
from headwise.corpora import HELD_OUT, TRAIN, Step, Steps
from headwise.model import Model

FUNCTIONS = ("alpha", "beta")
CARRIES = {"alpha": ((1, 2), (3, 0)), "beta": ((0, 4), (2, 2)), "gamma": ((2, 1),)}


def planted_readings(
    functions: tuple[str, ...] = ("alpha", "beta", "gamma"),
    per_function: int = 60,
    strength: float = 2.5,
    seed: int = 0,
    carries: Mapping[str, Sequence[tuple[int, int]]] = CARRIES,
) -> xr.Dataset:
    """Readings of the functions study, as `StepReader.read` gives them; `strength` 0: nothing to be known."""
    rng = np.random.default_rng(seed)
    count = per_function * len(functions)
    of = np.array([functions[row % len(functions)] for row in range(count)], dtype=object)
    z = rng.standard_normal((count, 6, 5, 8)).astype(np.float32)
    for name in functions:
        for layer, head in carries[name]:
            vector = rng.standard_normal(8)
            z[of == name, layer, head] += strength * vector / np.linalg.norm(vector)
    chain = np.array([f"q{row // len(functions)}" for row in range(count)], dtype=object)
    held_out = np.array([int(name[1:]) % 5 < 2 for name in chain])
    text = {
        "function_of": of,
        "split_of": np.where(held_out, HELD_OUT, TRAIN).astype(object),
        "chain": chain,
        **{name: np.array(["word"] * count, dtype=object) for name in ("question", "subquestion", "answer", "gold")},
        "rule": np.array(["exact"] * count, dtype=object),
        "key_text": np.array(["word"] * count, dtype=object),
    }
    number = np.arange(count, dtype=np.int64) % len(functions) + 1
    ones = np.ones(count, dtype=np.int64)
    return xr.Dataset(
        {name: (EXAMPLE, values) for name, values in text.items()}
        | {"number": (EXAMPLE, number), "answer_tokens": (EXAMPLE, ones), "key_tokens": (EXAMPLE, ones)}
        | {"right": (EXAMPLE, rng.random(count) < 0.5), "z": ((EXAMPLE, LAYER, HEAD, ENTRIES), z)},
        coords={EXAMPLE: np.array([f"s{row}" for row in range(count)], dtype=object)},
    )


def planted_steps(repeats: int = 2) -> Steps:
    """The pairs of `planted_tasks` as steps, one a question, each pair in several questions."""
    relations, items = planted_tasks(), []
    for turn in range(repeats):
        for relation in relations:
            for place, (source, target) in enumerate(relation.pairs):
                name = f"{relation.name}-{turn}-{place}"
                split = HELD_OUT if place % 2 else TRAIN
                items.append(Step(name, name, f"word{turn}", (), source, target, (target,), relation.name, split, 1))
    return Steps("planted steps", tuple(items))


def planted_steps_model() -> Model:
    """The model above."""
    return planted_tasks_model(back=3)


def planted_maps(steps: Steps, answered: dict[str, bool], model: Model) -> xr.Dataset:
    """A functions Dataset in which the planted heads come first, then all others; only what masking reads of it."""
    layers, heads, width = 3, 6, WIDTH
    everyone = [(layer, head) for layer in range(layers) for head in range(heads)]
    ranked = [[HEADS[name], *(one for one in everyone if one != HEADS[name])] for name in FUNCTIONS]
    importance = np.zeros((2, layers, heads), dtype=np.float32)
    for row, order in enumerate(ranked):
        for place, one in enumerate(order):
            importance[(row, *one)] = 1 - place / len(order)
    names = [[f"L{layer}H{head}" for layer, head in row] for row in ranked]
    items = list(steps)
    data = {"name": steps.name, "digest": steps.digest}
    origin = Provenance("functions", 4, model.identity(), data, {"max_new_tokens": 1}, 0)
    return xr.Dataset(
        {
            "refused": ("function", [False, False]),
            "reason": ("function", np.array(["", ""], dtype=object)),
            "train_importance": (("function", "layer", "head"), importance),
            "output_norm": (("layer", "head"), np.tile(np.arange(1.0, heads + 1, dtype=np.float32), (layers, 1))),
            "ranked": (("function", "rank"), np.array(names, dtype=object)),
            "direction": (("function", "layer", "head", "width"), np.zeros((2, layers, heads, width), np.float32)),
            "train_right": ("function", [10, 10]),
            "train_wrong": ("function", [0, 0]),
            "function_of": ("example", np.array([step.function for step in items], dtype=object)),
            "split_of": ("example", np.array([step.split for step in items], dtype=object)),
            "right": ("example", np.array([answered[step.id] for step in items])),
        },
        coords={
            "function": np.array(FUNCTIONS, dtype=object),
            "layer": np.arange(layers),
            "head": np.arange(heads),
            "example": np.array([step.id for step in items], dtype=object),
        },
    ).assign_attrs({**origin.to_attrs(), "record": json.dumps([])})
