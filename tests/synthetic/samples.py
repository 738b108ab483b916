"""A sampling study's Dataset, made up."""

import numpy as np
import xarray as xr

from headwise.core.schema import TEXT
from headwise.studies.registry import dataset_spec
from synthetic.origin import provenance

STRATEGIES = ("greedy", "random", "majority", "probe", "trust", "any")
TYPES = {
    "A": "refuses",
    "B": "consistently correct",
    "C": "consistently wrong",
    "D": "two competing",
    "E": "many answers",
}


def samples(
    questions: int = 90, draws: int = 12, seed: int = 0, sizes: tuple[int, ...] = (0, 40, 25, 5, 30)
) -> xr.Dataset:
    """Types of these sizes; strategies get better in their order."""
    random = np.random.default_rng(seed)
    types = np.stack([np.arange(questions) < size for size in sizes], axis=1)
    each = np.array([0.4, 0.38, 0.45, 0.52, 0.55, 0.7], dtype=np.float32)
    by_type = np.clip(each[None] + random.uniform(-0.3, 0.3, (5, 1)), 0.05, 0.95).astype(np.float32)
    by_type[np.array(sizes) == 0] = np.nan
    auroc = np.array([np.nan, 0.81, 0.64, np.nan, 0.7], dtype=np.float32)
    picked = (random.random((6, questions)) < each[:, None]).astype(np.float32)
    gain, type_gain = each - each[:1], by_type - by_type[:, :1]
    variables = {
        "answer": (("example", "draw"), np.full((questions, draws), "word", dtype=object)),
        "is_type": (("example", "error_type"), types),
        "picked": (("strategy", "example"), picked),
        "accuracy": ("strategy", each), "accuracy_low": ("strategy", each - 0.1), "accuracy_high": ("strategy", each + 0.1),
        "gain": ("strategy", gain), "gain_low": ("strategy", gain - 0.05), "gain_high": ("strategy", gain + 0.05),
        "type_accuracy": (("error_type", "strategy"), by_type),
        "type_accuracy_low": (("error_type", "strategy"), by_type - 0.05),
        "type_accuracy_high": (("error_type", "strategy"), by_type + 0.05),
        "type_gain": (("error_type", "strategy"), type_gain),
        "type_gain_low": (("error_type", "strategy"), type_gain - 0.06),
        "type_gain_high": (("error_type", "strategy"), type_gain + 0.06),
        "type_auroc": ("error_type", auroc), "type_low": ("error_type", auroc - 0.09),
        "type_high": ("error_type", auroc + 0.09), "type_null_high": ("error_type", auroc * 0 + 0.6),
        "probe_auroc": ((), np.float32(0.74)), "probe_auroc_low": ((), np.float32(0.7)),
        "probe_auroc_high": ((), np.float32(0.78)),
        "within_auroc": ((), np.float32(0.62)), "within_auroc_low": ((), np.float32(0.55)),
        "within_auroc_high": ((), np.float32(0.69)),
        "fit_questions": ((), np.int64(500)), "fit_answers": ((), np.int64(1480)),
    }  # fmt: skip
    sizes_of = {"example": questions, "draw": draws}
    for name, one in dataset_spec("samples").schema.expanded().items():  # what neither figure nor words read
        if name not in variables and not one.coordinate:
            shape = tuple(sizes_of[dim] for dim in one.dims)
            filled = np.full(shape, "word", dtype=object) if one.dtype == TEXT else np.zeros(shape, dtype=one.dtype)
            variables[name] = (one.dims, filled)
    coords = {
        "draw": np.arange(draws),
        "strategy": np.array(STRATEGIES, dtype=object), "error_type": np.array(list(TYPES), dtype=object),
        "type_name": ("error_type", np.array(list(TYPES.values()), dtype=object)),
        "example": [f"q{place}" for place in range(questions)],
    }  # fmt: skip
    attrs = {"title": "Sampled many times: types of errors, and which answer is best", "record": "[]"}
    attrs |= {
        "site": "mlp_in",
        "layer": 17,
        "temperature": 1.0,
        "provenance": provenance("samples", 30, 9, data="questions", size=questions),
    }
    return xr.Dataset(variables, coords=coords, attrs=attrs)
