"""The figure of a run of sparse post-training: how edges fell, what it cost on the way, and what it costs in the end.

Made from the `training.json` that `headwise sparsify` leaves, not from an atlas. Four panels: the share of open edges over
steps (expected with noisy gates, and hard on held-out text); how far the loss is from the dense model's; pressure and bias;
and, of the trained model, the excess loss against open edges as the gates' bias is varied around its trained 0, one curve per
kind of text.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from headwise.core.provenance import public_name
from headwise.figures.figure import Figure
from headwise.figures.panels import Axis, Curve, Curves, Guide

COLOURS = ("#34688d", "#2b9853", "#ae4b04", "#7950a6", "#98792f", "#be316c", "#24acb1", "#8f8f8d")


def figure(record: dict[str, Any]) -> Figure:
    """All four panels; `record` is the content of training.json."""
    model, recipe = record["model"], record["recipe"]
    zero = [row for row in record["final"] if row["bias"] == 0.0]
    biases = ", ".join(f"{bias:g}" for bias in sorted({row["bias"] for row in record["final"]}))
    share = np.mean([row["share"] for row in zero if row["texts"] == "held-out"])
    return Figure(
        title=f"Sparse post-training: {public_name(str(model['id'])).rsplit('/', 1)[-1]}",
        panels=(_edges(record), _losses(record), _pressing(record), _costs(record)),
        columns=2,
        notes=(
            f"{recipe['steps']} steps of {recipe['batch']} x {recipe['length']} tokens; the {recipe['hold']} was held "
            f"within {recipe['slack']:g} nats of the dense model. In the end {100 * share:.2g} % of visible edges are open "
            "on held-out text. Lower right: corners from left to right are gates with a bias of "
            f"{biases}; the model was trained for 0; "
            "dashed: kinds of text that were never trained on.",
        ),
        provenance=f"{public_name(str(model['id']))} · texts {record['texts_digest'][:12]} · seed {recipe['seed']}",
    )


def _column(rows: list[dict[str, Any]], name: str) -> np.ndarray:
    return np.array([row[name] for row in rows], dtype=float)


def _of_looks(record: dict[str, Any], name: str, times: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """Steps, and the mean over kinds of held-out text."""
    looks = record["evaluations"] if "evaluations" in record else record["looks"]  # "looks" in records of version 0.1
    means = [np.mean([kind[name] for kind in look["kinds"]]) for look in looks]
    return _column(looks, "step"), times * np.array(means)


def _edges(record: dict[str, Any]) -> Curves:
    curve = record["curve"]
    steps = _column(curve, "step")
    return Curves(
        "edges",
        "Open edges",
        (
            Curve("expected", "expected, training text", steps, 100 * _column(curve, "share"), colour=COLOURS[0]),
            Curve(
                "hard", "hard gates, held-out text", *_of_looks(record, "share", 100), colour=COLOURS[2], style="points"
            ),
        ),
        Axis("Step"),
        Axis("Visible edges that are open (%)", log=True),
    )


def _losses(record: dict[str, Any]) -> Curves:
    curve = record["curve"]
    steps = _column(curve, "step")
    return Curves(
        "losses",
        "Loss over the dense model's",
        (
            Curve("train", "training text", steps, _column(curve, "loss") - _column(curve, "dense"), colour=COLOURS[0]),
            Curve("held", "held-out, hard gates", *_of_looks(record, "excess"), colour=COLOURS[2], style="points"),
            Curve("distance", "KL, training text", steps, _column(curve, "distance"), colour=COLOURS[7]),
        ),
        Axis("Step"),
        Axis("Nats a token"),
        guides=(Guide("y", float(record["recipe"]["slack"]), "held"),),
    )


def _pressing(record: dict[str, Any]) -> Curves:
    curve = record["curve"]
    steps = _column(curve, "step")
    return Curves(
        "pressing",
        "Pressure and bias",
        (
            Curve("pressure", "pressure", steps, _column(curve, "pressure"), colour=COLOURS[0]),
            Curve("bias", "bias of the gates", steps, _column(curve, "bias"), colour=COLOURS[2], style="dashed"),
        ),
        Axis("Step"),
        Axis("Weight; logits"),
    )


def _costs(record: dict[str, Any]) -> Curves:
    kinds = list(dict.fromkeys((row["texts"], row["kind"]) for row in record["final"]))
    curves = []
    for index, (texts, kind) in enumerate(kinds):
        rows = [row for row in record["final"] if (row["texts"], row["kind"]) == (texts, kind)]
        style = "dashed" if texts == "unseen" else "line"
        colour = COLOURS[index % len(COLOURS)]
        curves.append(
            Curve(
                f"{texts}/{kind}",
                kind,
                100 * _column(rows, "share"),
                _column(rows, "excess"),
                colour=colour,
                style=style,
            )
        )
    return Curves(
        "costs",
        "The trained model",
        tuple(curves),
        Axis("Visible edges that are open (%)", log=True),
        Axis("Loss over dense (nats)"),
        guides=(Guide("y", 0.0),),
    )
