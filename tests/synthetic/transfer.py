"""Answers to three question sets with their readings, made up; and the Dataset that the transfer study makes of them."""

import numpy as np
import xarray as xr

from headwise.studies.transfer.measure import finalize
from headwise.studies.transfer.spec import TransferOptions
from synthetic.origin import provenance

SETS = ("alpha", "beta", "gamma")
LAYERS, HEADS, RANKS, WIDTH = 2, 4, 5, 8


def answers(per_set: int = 120, seed: int = 0, sets: tuple[str, ...] = SETS) -> xr.Dataset:
    """Entropy of L0H0 rises with the error in every set; lookback of L1Hi only in set i; all else is noise.

    In the first set, questions that name a zebra are mostly answered wrongly; in the others they are not.
    """
    random = np.random.default_rng(seed)
    rows = per_set * len(sets)
    of = np.repeat(np.arange(len(sets)), per_set)
    wrong = random.random(rows) < 0.55
    zebra = np.where(of == 0, wrong ^ (random.random(rows) < 0.15), random.random(rows) < 0.5)
    words = random.choice(["river", "city", "king", "year", "song", "war"], size=(rows, 3))
    asked = [f"Which {' '.join(row)}{' zebra' * int(named)}?" for row, named in zip(words, zebra, strict=True)]
    heads = (rows, LAYERS, HEADS)
    entropy, lookback = random.normal(size=heads), random.normal(size=heads)
    entropy[:, 0, 0] += 1.8 * wrong
    lookback[np.arange(rows), 1, of] += 1.8 * wrong
    part = ("example", "part", "layer", "head")
    both = {"attention_score": random.normal(size=heads), "lookback": lookback, "entropy": entropy}
    variables = {
        "laplacian": (("example", "layer", "head", "rank"), random.normal(size=(*heads, RANKS))),
        "attention": (("example", "layer", "head", "rank"), random.normal(size=(*heads, RANKS))),
        "hidden": (("example", "layer", "width"), random.normal(size=(rows, LAYERS, WIDTH))),
        **{name: (part, np.stack([values, values], axis=1)) for name, values in both.items()},
        "label": ("example", np.where(wrong, "wrong", "correct").astype(object)),
        "topic": ("example", np.array(sets, dtype=object)[of]),
        "question": ("example", np.array(asked, dtype=object)),
        "answer": ("example", np.full(rows, "it", dtype=object)),
        "gold": ("example", np.full(rows, "that", dtype=object)),
        "answer_tokens": ("example", random.integers(1, 9, rows)),
        "prompt_tokens": ("example", random.integers(30, 60, rows)),
        "logprob_mean": ("example", random.normal(size=rows) - 0.7 * wrong),
        "logprob_min": ("example", random.normal(size=rows) - 0.7 * wrong),
    }  # fmt: skip
    return xr.Dataset(variables, coords={"example": [f"{sets[one]}: q{row}" for row, one in enumerate(of)]})


def transfer(per_set: int = 120, seed: int = 0, sets: tuple[str, ...] = SETS) -> xr.Dataset:
    """The study's Dataset."""
    found = finalize(answers(per_set, seed, sets), TransferOptions(sets=sets, k=RANKS))
    origin = provenance("transfer", LAYERS, HEADS, data=", ".join(sets), size=found.sizes["example"])
    return found.assign_attrs(provenance=origin)
