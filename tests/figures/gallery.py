"""One small figure of each kind that the studies to come will need: proof that a figure as data can express them."""

from __future__ import annotations

import numpy as np

from headwise.figures import (
    Axis,
    Category,
    CategoryMap,
    Curve,
    Curves,
    Figure,
    Frame,
    Guide,
    Heatmap,
    Intervals,
    Legend,
    Mark,
    Scale,
    Scatter,
)

TOKENS = (
    "last_q", "first_answer", "second_answer", "exact_answer_before_first", "exact_answer_first", "exact_answer_last",
    "exact_answer_after_last", "-8", "-7", "-6", "-5", "-4", "-3", "-2", "-1",
)  # fmt: skip
FUNCTIONS = (
    "Knowledge Recall", "Retrieval", "Logical Reasoning", "Decision-making", "Semantic Understanding",
    "Syntactic Understanding", "Inference", "Math Calculation",
)  # fmt: skip
CATEGORIES = (
    Category("algorithmic", "Algorithmic", "#1f77b4"), Category("knowledge", "Knowledge", "#ff7f0e"),
    Category("linguistic", "Linguistic", "#2ca02c"), Category("translation", "Translation", "#d62728"),
    Category("two", "two categories", "#9467bd"), Category("unclassified", "unclassified", "#d9d9d9"),
)  # fmt: skip


def _numbers(size: int) -> tuple[str, ...]:
    return tuple(str(place) for place in range(size))


def gallery() -> dict[str, Figure]:
    """By the study that needs it."""
    generator = np.random.default_rng(0)
    head, layer = Axis("Head", _numbers(16)), Axis("Layer", _numbers(12))
    holes = generator.random((12, 16))
    holes[3, 4:6] = np.nan
    p_value = Scale("p-value", 0.0, 1.0)
    importance = Scale("Head importance", 0.0, 0.004, over=True)
    token, auroc = Axis("Token", TOKENS), Scale("AUROC", 0.5, 1.0, "Blues")
    by_layer, by_head = Axis("Layer", _numbers(30)), Axis("Head", _numbers(9))
    rank = np.arange(1.0, 100.0)
    drop = 0.004 * np.exp(-rank / 20)
    x = generator.random(192)
    return {
        "spectral": Figure(
            "Which heads differ",
            (
                Heatmap("score", "AttnScore", generator.random((12, 16)), head, layer, "p"),
                Heatmap("laplacian", "10 largest Laplacian eigenvalues", holes, head, layer, "p"),
            ),
            2,
            {"p": p_value},
            notes=("Two-sided Mann-Whitney U test.",),
        ),
        "functions": Figure(
            "Which heads carry which function",
            tuple(Heatmap(name, name, generator.gamma(0.4, 0.001, (12, 16)), head, layer, "i") for name in FUNCTIONS),
            4,
            {"i": importance},
        ),
        "probing": Figure(
            "Where a probe detects wrong answers",
            (
                Heatmap(
                    "auroc",
                    "Probe on the MLP input",
                    0.5 + holes[:, :15] / 2,
                    token,
                    layer,
                    "auroc",
                    frames=(Frame(4, 8, 3, 6, "exact answer"),),
                    marks=(Mark(2, 7, sign="cross"),),
                ),
                Heatmap("attention", "Attention received", generator.random((12, 15)), token, layer, "share"),
            ),
            2,
            {"auroc": auroc, "share": Scale("share of attention", 0.0, 1.0)},
        ),
        "relations": Figure(
            "What each head computes",
            (
                CategoryMap(
                    "all",
                    "All Categories",
                    generator.integers(-1, 6, (9, 30)),
                    CATEGORIES,
                    by_layer,
                    by_head,
                    shape="dot",
                ),
                Legend("legend", CATEGORIES, "Category"),
                CategoryMap("one", "Knowledge", generator.integers(0, 6, (9, 30)), CATEGORIES, by_layer, by_head),
            ),
            2,
        ),
        "detection": Figure(
            "How well wrong answers are told",
            (
                Intervals(
                    "auroc",
                    "AUROC",
                    [0.84, 0.8, 0.55],
                    [0.8, 0.75, 0.5],
                    [0.88, 0.85, 0.6],
                    Axis("AUROC", low=0.4, high=1.0),
                    Axis("", ("LapEigvals", "Hidden state, best layer", "Answer length")),
                    groups=(0, 0, 1),
                    categories=CATEGORIES[:2],
                    guides=(Guide("x", 0.5),),
                ),
                Intervals("one", "One", [0.5], [np.nan], [np.nan], Axis("AUROC"), Axis("", ("AttnScore",))),
            ),
            2,
        ),
        "companions": Figure(
            "Companions",
            (
                Curves(
                    "sorted",
                    "Sorted importance",
                    (
                        Curve("a", "Retrieval", rank, drop, drop * 0.8, drop * 1.2),
                        Curve("b", "Inference", rank, drop / 2, colour="#b5500b", style="dashed"),
                    ),
                    Axis("Head rank"),
                    Axis("Importance"),
                    guides=(Guide("x", 38, "elbow"),),
                ),
                Curves(
                    "sweep",
                    "Sweep",
                    (Curve("k", "AUROC", [5, 10, 25, 50, 100], [0.7, 0.75, 0.8, 0.82, 0.83], style="step"),),
                    Axis("k", log=True),
                    Axis("AUROC", low=0.5, high=1.0),
                    guides=(Guide("y", 0.6, "baseline"),),
                ),
                Scatter(
                    "pair",
                    "Dynamic against static",
                    x,
                    x + 0.1 * generator.normal(size=192),
                    Axis("from weights"),
                    Axis("from prompts"),
                    names=tuple(f"L{place // 16}H{place % 16}" for place in range(192)),
                    groups=tuple(place % 2 for place in range(192)),
                    categories=CATEGORIES[:2],
                    shown=(0, 5, 9),
                    guides=(Guide("diagonal"),),
                ),
                Heatmap(
                    "cross",
                    "Cross-masking",
                    holes[:4, :4],
                    Axis("tested", FUNCTIONS[:4]),
                    Axis("masked", FUNCTIONS[:4]),
                    "p",
                    marks=tuple(Mark(row, row, ".50", "text") for row in range(4)),
                ),
            ),
            2,
            {"p": p_value},
        ),
    }
