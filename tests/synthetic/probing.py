"""A synthetic probing study with a known course: a hill at the end of the question, a dip, a ridge at the exact answer."""

from __future__ import annotations

import json

import numpy as np
import xarray as xr

from synthetic.origin import provenance

TOKENS = (
    "last_q", "first_answer", "second_answer", "exact_answer_before_first", "exact_answer_first", "exact_answer_last",
    "exact_answer_after_last", "-8", "-7", "-6", "-5", "-4", "-3", "-2", "-1",
)  # fmt: skip
COURSE = (0.18, 0.1, 0.04, 0.14, 0.24, 0.32, 0.26, 0.05, 0.05, 0.06, 0.06, 0.07, 0.1, 0.14, 0.18)  # above a coin toss
ROWS = {
    "Probe, best cell": 0.8, "Probe, best head": 0.72, "Probe, exact answer": 0.81, "Probe, last token": 0.66,
    "Probe, end of question": 0.65,
    "Log-probability, mean": 0.6, "Log-probability, min of exact answer": 0.74, "p(True)": 0.48, "Length": 0.58,
    "Question: topic": 0.66, "Question: topic, difficulty, length": 0.73, "Question: words": 0.62,
}  # fmt: skip
KINDS = {"Probe,": "supervised", "Question:": "question"}
GROUPS = ("animals, body", "books, films, music", "capitals, continents")


def probing_dataset(layers: int = 30, heads: int = 9, *, strength: float = 1.0, examples: int = 500) -> xr.Dataset:
    """``strength`` 0 is a map of nothing but noise."""
    rng = np.random.default_rng(0)
    depth = np.exp(-(((np.arange(layers) / max(layers - 1, 1) - 0.6) / 0.35) ** 2))[:, None]
    noise = rng.normal(scale=0.012, size=(2, layers, 15))
    auroc = 0.5 + strength * np.stack([depth * COURSE, 0.95 * depth * COURSE]) + noise
    high = np.full(2, 0.6)
    exact = auroc[:, :, 3:7].max(axis=2)
    near = [np.flatnonzero(one >= one.max() - 0.02) for one in exact]
    found = exact.max(axis=1) > high
    head = 0.5 + strength * 0.2 * rng.random((layers, heads)) ** 3 + rng.normal(scale=0.01, size=(layers, heads))
    head_q = np.where(head > 0.58, 0.01, 0.4)
    within, head_within = 0.5 + 0.5 * (auroc - 0.5), 0.5 + 0.6 * (head - 0.5)
    wrong = np.random.default_rng(1).permutation(np.arange(examples) % 5 < 3)
    in_prompt = np.zeros(15, dtype=np.int64)
    in_prompt[7:10] = (40, 22, 6)
    received = rng.random((layers, 15)) * 0.1
    received[:, -1] = np.nan
    published = np.full((layers, 15), np.nan)
    published[:, 3:7] = auroc[0, :, 3:7] + 0.03
    transfer = 0.6 + 0.2 * np.vstack([np.eye(3), np.full(3, 0.5)])
    base = np.array([0.6, 0.65, 0.7])
    cells, small = ("site", "layer", "token"), np.float32

    def of(dims: tuple[str, ...], values: np.ndarray) -> tuple[tuple[str, ...], np.ndarray]:
        return dims, values.astype(small)

    names = [f"q-{index}" for index in range(examples)]
    return xr.Dataset(
        {
            "auroc": of(cells, auroc), "low": of(cells, auroc - 0.05), "high": of(cells, auroc + 0.05),
            "p": of(cells, np.where(auroc > 0.56, 0.001, 0.5)), "q": of(cells, np.where(auroc > 0.56, 0.005, 0.6)),
            "null_high": of(cells, np.full(auroc.shape, 0.55)), "chosen": (cells, np.zeros(auroc.shape, dtype=np.int64)),
            "best_high": of(("site",), high), "best_p": of(("site",), np.where(found, 0.01, 0.4)),
            "nested": of(("site",), auroc.max(axis=(1, 2)) - 0.02),
            "nested_low": of(("site",), auroc.max(axis=(1, 2)) - 0.07),
            "nested_high": of(("site",), auroc.max(axis=(1, 2)) + 0.03),
            "frame_first": ("site", np.where(found, [one[0] for one in near], -1)),
            "frame_last": ("site", np.where(found, [one[-1] for one in near], -1)),
            "head_auroc": of(("layer", "head"), head), "head_low": of(("layer", "head"), head - 0.05),
            "head_high": of(("layer", "head"), head + 0.05), "head_q": of(("layer", "head"), head_q),
            "head_p": of(("layer", "head"), head_q / 2), "head_null_high": of(("layer", "head"), head * 0 + 0.55),
            "head_best_high": 0.6, "head_best_p": 0.01 if strength else 0.5,
            "published": of(("layer", "token"), published), "paper": of(("layer", "token"), auroc[0] + 0.05),
            "received": of(("layer", "token"), received),
            "in_prompt": ("token", in_prompt), "moved": ("token", np.zeros(15, dtype=np.int64)),
            "table_auroc": of(("detector",), np.array(list(ROWS.values()))),
            "table_low": of(("detector",), np.array(list(ROWS.values())) - 0.05),
            "table_high": of(("detector",), np.array(list(ROWS.values())) + 0.05),
            "table_exact": of(("detector",), np.array(list(ROWS.values())) - 0.01),
            "table_exact_low": of(("detector",), np.array(list(ROWS.values())) - 0.07),
            "table_exact_high": of(("detector",), np.array(list(ROWS.values())) + 0.05),
            "table_within": of(("detector",), 0.5 + (np.array(list(ROWS.values())) - 0.5) / 3),
            "table_within_low": of(("detector",), 0.44 + (np.array(list(ROWS.values())) - 0.5) / 3),
            "table_within_high": of(("detector",), 0.56 + (np.array(list(ROWS.values())) - 0.5) / 3),
            "table_gain": of(("detector",), np.array(list(ROWS.values())) - 0.73),
            "table_gain_low": of(("detector",), np.array(list(ROWS.values())) - 0.78),
            "table_gain_high": of(("detector",), np.array(list(ROWS.values())) - 0.68),
            "table_gain_p": of(("detector",), np.linspace(0.002, 0.8, len(ROWS))),
            "within": of(cells, within), "within_low": of(cells, within - 0.06), "within_high": of(cells, within + 0.06),
            "within_p": of(cells, np.where(within > 0.62, 0.001, 0.5)),
            "within_q": of(cells, np.where(within > 0.62, 0.02, 0.6)),
            "within_null_high": of(cells, np.full(auroc.shape, 0.57)), "within_best_high": ("site", np.full(2, 0.62)),
            "within_best_p": ("site", np.where(within.max(axis=(1, 2)) > 0.62, 0.01, 0.3)),
            "nested_within": of(("site",), within.max(axis=(1, 2)) - 0.02),
            "nested_within_low": of(("site",), within.max(axis=(1, 2)) - 0.08),
            "nested_within_high": of(("site",), within.max(axis=(1, 2)) + 0.04),
            "head_within": of(("layer", "head"), head_within),
            "head_within_low": of(("layer", "head"), head_within - 0.05),
            "head_within_high": of(("layer", "head"), head_within + 0.05),
            "head_within_p": of(("layer", "head"), np.where(head_within > 0.57, 0.002, 0.5)),
            "head_within_q": of(("layer", "head"), np.where(head_within > 0.57, 0.02, 0.6)),
            "head_within_null_high": of(("layer", "head"), head * 0 + 0.56),
            "head_within_best_high": 0.61, "head_within_best_p": 0.02 if strength else 0.4,
            "stratum": ("example", np.arange(examples) % 60),
            "table_over_logprob": of(("detector",), np.array(list(ROWS.values())) - 0.74),
            "table_over_logprob_low": of(("detector",), np.array(list(ROWS.values())) - 0.8),
            "table_over_logprob_high": of(("detector",), np.array(list(ROWS.values())) - 0.68),
            "table_over_logprob_p": of(("detector",), np.linspace(0.001, 0.9, len(ROWS))),
            "auroc_exact": of(cells, auroc - 0.01), "has_exact": ("example", np.arange(examples) >= 22),
            "transfer": of(("trained_on", "topic"), transfer), "transfer_low": of(("trained_on", "topic"), transfer - 0.1),
            "transfer_high": of(("trained_on", "topic"), transfer + 0.1),
            "transfer_gain": of(("trained_on", "topic"), transfer - base), "transfer_logprob": of(("topic",), base),
            "wrong": ("example", wrong), "fold_of": ("example", np.arange(examples) % 5),
            "exact_first": ("example", np.zeros(examples, dtype=np.int64)),
            "exact_last": ("example", np.ones(examples, dtype=np.int64)),
            "answer_tokens": ("example", np.full(examples, 9)),
            "exact": ("example", np.array(["Oslo"] * examples, dtype=object)),
            "topic_of": ("example", np.array(["capitals"] * examples, dtype=object)),
            "p_true": of(("example",), rng.random(examples)),
        },
        coords={
            "site": np.array(["mlp_in", "residual"], dtype=object), "layer": np.arange(layers), "head": np.arange(heads),
            "token": np.array(TOKENS, dtype=object), "example": np.array(names, dtype=object),
            "detector": np.array(list(ROWS), dtype=object),
            "kind": ("detector", np.array([KINDS.get(row.split()[0], "score") for row in ROWS], dtype=object)),
            "trained_on": np.array([*GROUPS, "others"], dtype=object), "topic": np.array(GROUPS, dtype=object),
        },
        attrs={
            "title": "Where a probe detects wrong answers", "spans": "blind",
            "record": json.dumps(["head_auroc", "head_q", "head_within", "head_within_q"]),
            "strata": "topic x difficulty (60 strata)", "question_reference": "Question: topic, difficulty, length",
            "folds": 5, "shuffles": 100, "logprob_reference": "Log-probability, min of exact answer",
            "counts": json.dumps(
                {"refused": 4, "wrong": int(wrong.sum()), "correct": int((~wrong).sum()), "without_exact_wrong": 20,
                 "without_exact_correct": 2, "cut": 11, "spans_differ": 26}
            ),
            "leak": json.dumps(
                {"exact_answer_last": {"blind": 0.7, "published": 0.73, "difference": 0.03, "layer": 20, "at_layer": 0.02,
                                       "low": -0.01, "high": 0.05, "p": 0.2}}
            ),
            "provenance": provenance("probing", layers, heads, data="questions", size=examples),
        },
    )  # fmt: skip
