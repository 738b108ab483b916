"""A synthetic causal_answers Dataset: labels and scores are made up, everything else comes from the study's own function.

L1H1 is needed to answer (without it half of the correct answers are lost), and L2H0 by the detector that reads it.
"""

from __future__ import annotations

import numpy as np
import xarray as xr

from headwise.studies.causal_answers.finalize import BOTH, CONTROL, INTACT, Ablated, finalize
from headwise.studies.causal_answers.spec import AUROCS, CausalAnswersOptions
from synthetic.origin import provenance

NEEDED, READ = (1, 1), (2, 0)
ABLATED = (  # in three layers of two heads, so that the smallest atlases of the tests have them, too
    Ablated((), INTACT),
    Ablated((NEEDED,), "needed", (5, 6)),
    Ablated((READ,), "detector", (7,)),
    Ablated((NEEDED, (0, 0)), "needed", (8,)),
    Ablated((READ, (0, 0)), "detector", (9,)),
    Ablated(((1, 0),), CONTROL),
    Ablated(((0, 1),), CONTROL),
    Ablated(((2, 1),), CONTROL),
    Ablated(((1, 0), (0, 1)), CONTROL),
    Ablated(((2, 1), (0, 1)), CONTROL),
    Ablated(((0, 0),), BOTH, (6,)),
)


def readings(seed: int = 0, *, questions: int = 60, answers: int = 100, effect: bool = True) -> xr.Dataset:
    """Labels and scores under every ablation; with ``effect=False`` heads change nothing but by chance."""
    generator = np.random.default_rng(seed)
    correct = np.tile(generator.random(questions) < 0.6, (len(ABLATED), 1))
    wrong = np.arange(answers) % 2 == 0
    scores = {name: np.tile(wrong * 2.0 + generator.normal(size=answers), (len(ABLATED), 1)) for name in AUROCS}
    correct ^= generator.random(correct.shape) < 0.04
    for index, one in enumerate(ABLATED):
        if effect and NEEDED in one.heads:
            correct[index] &= generator.random(questions) < 0.5
        for name, values in scores.items():
            values[index] += generator.normal(scale=0.1, size=answers)
            if effect and READ in one.heads and name in ("detector", "detector_reading"):
                values[index] = generator.normal(size=answers)
    labels = np.where(correct, "correct", np.where(generator.random(correct.shape) < 0.1, "refused", "wrong"))
    return xr.Dataset(
        {"label": (("place", "question"), labels.astype(object))}
        | {name: (("place", "example"), values) for name, values in scores.items()}
    )


def made(seed: int = 0, layers: int = 30, heads: int = 9, *, effect: bool = True, questions: int = 60) -> xr.Dataset:
    """As `finalize` makes it."""
    weight = np.random.default_rng(seed).gamma(1, 0.1, (layers, heads))
    wrong, fold_of = np.arange(100) % 2 == 0, np.arange(100) // 20
    return finalize(readings(seed, effect=effect, questions=questions), ABLATED, wrong, fold_of, weight)


def causal_answers_dataset(layers: int = 30, heads: int = 9, seed: int = 0) -> xr.Dataset:
    """With its attributes and origin."""
    options = CausalAnswersOptions()
    origin = provenance("causal_answers", layers, heads, data="packaged questions", size=options.questions)
    return made(seed, layers, heads).assign_attrs(
        strata="topic x difficulty", n_strata=40, site="residual", layer=layers // 2, where="answer", not_asked="",
        provenance=origin,
    )  # fmt: skip
