"""Four answers, one of each label and rule that a table must show, as the study of answers stores them."""

from __future__ import annotations

import json

import numpy as np
import xarray as xr

from headwise.atlas import Provenance

ROWS = [  # id, topic, question, answer, gold, label, rule
    ("c1", "capitals", "Capital of France?", "It is Paris.", "Paris", "correct", "phrase"),
    ("c2", "capitals", "Capital of Peru?", "I don't know.", "Lima", "refused", "refusal"),
    ("c3", "capitals", "Capital of Chile?", "[bold]Lima[/bold], " + "on and on " * 20, "Santiago", "wrong", "no match"),
    ("y1", "years", "Year of the fire?", "1666", "1666", "correct", "exact"),
]


def answers_dataset(digest: str = "d") -> xr.Dataset:
    names, topics, questions, answers, golds, labels, rules = (list(column) for column in zip(*ROWS, strict=True))
    texts = {
        "question": questions, "answer": answers, "gold": golds, "golds": [json.dumps([gold]) for gold in golds],
        "label": labels, "rule": rules, "matched": [""] * 4, "topic": topics, "prompt_ids": ["1 2"] * 4,
        "answer_ids": ["3"] * 4,
    }  # fmt: skip
    numbers = {"difficulty": 1, "prompt_tokens": 2, "answer_tokens": 1}
    dataset = xr.Dataset(
        {name: ("example", np.array(values, dtype=object)) for name, values in texts.items()}
        | {name: ("example", np.full(4, value, dtype=np.int64)) for name, value in numbers.items()}
        | {name: ("example", np.full(4, -0.5, dtype=np.float32)) for name in ("logprob_mean", "logprob_min")}
        | {"finished": ("example", np.array([True, True, False, True]))},
        coords={"example": np.array(names, dtype=object)},
        attrs={"title": "Answers", "record": "[]"},
    )
    origin = Provenance("answers", 1, {"id": "m", "digest": digest}, {"name": "q", "size": 4}, {}, 0)
    return dataset.assign_attrs(origin.to_attrs())
