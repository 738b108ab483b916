"""How long does the detector table take, by number of answers? Synthetic answers with a long tail of variances.

    python benchmarks/detectors.py 1000 2000 4000 [--columns 100] [--json FILE]

Rows as in the study `detection` for a model of 30 x 9 heads: two sets of eigenvalues (k = 5 to 100, 27,000 columns) with curves
and transfer, three of one number per head, a hidden state of 30 layers, question-only rows and stacks. Prints seconds, the
longest silence between two steps of progress, and how many regressions did not converge. Uses a GPU where torch sees one.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np
import torch
import xarray as xr

from headwise.core.progress import reporting
from headwise.probes import TableOptions, detector_table

LAYERS, HEADS, WIDTH, FACTORS = 30, 9, 576, 400
DIMS = ("example", "layer", "head", "rank")


def answers(count: int, ranks: int, seed: int = 0) -> tuple[dict[str, xr.DataArray], np.ndarray]:
    """Feature sets and labels; variances fall like those of the default model's Laplacian eigenvalues."""
    generator = np.random.default_rng(seed)
    scale = (1 + np.arange(FACTORS)) ** -0.7
    latent = (generator.standard_normal((count, FACTORS)) * scale).astype(np.float32)
    wrong = generator.random(count) < 1 / (1 + np.exp(-1.5 * latent[:, :40] @ generator.standard_normal(40)))

    def ranked() -> xr.DataArray:
        directions = generator.standard_normal((FACTORS, LAYERS * HEADS * ranks)).astype(np.float32)
        table = latent @ directions
        table += 0.2 * generator.standard_normal(table.shape, dtype=np.float32)
        return xr.DataArray((0.02 * table).reshape(count, LAYERS, HEADS, ranks), dims=DIMS)

    sets = {"LapEigvals": ranked(), "AttnEigvals": ranked()}
    sets |= {name: sets["LapEigvals"][..., i] for i, name in enumerate(("AttnLogDet", "Lookback", "Entropy"))}
    mixing = generator.standard_normal((FACTORS, WIDTH)).astype(np.float32)
    hidden = [latent @ mixing + generator.standard_normal((count, WIDTH), dtype=np.float32) for _ in range(LAYERS)]
    sets["Hidden state"] = xr.DataArray(np.stack(hidden, axis=1), dims=("example", "layer", "width"))
    return sets, wrong


def measure(count: int, ranks: int) -> dict[str, float]:
    """One table."""
    sets, wrong = answers(count, ranks)
    generator = np.random.default_rng(1)
    topic, strata = generator.integers(0, 24, count), generator.integers(0, 72, count)
    questions = {"Question: topic": np.eye(24)[topic], "Question: words": generator.standard_normal((count, 64))}
    last = start = time.perf_counter()
    silent = 0.0

    def heard(what: str, done: int, total: int) -> None:
        nonlocal last, silent
        silent, last = max(silent, time.perf_counter() - last), time.perf_counter()

    with reporting(heard):
        table = detector_table(
            sets, wrong, {"Length": generator.integers(4, 30, count).astype(float)},
            questions=questions, combine={"Question + heads": (*questions, "LapEigvals", "Lookback", "Entropy")},
            topics=np.array([f"topic {number % 12}" for number in topic]), strata=strata,
            options=TableOptions(details=("LapEigvals", "AttnEigvals")),
        )  # fmt: skip
    end = time.perf_counter()
    found = {"answers": count, "seconds": end - start, "silent": max(silent, end - last)}
    found |= {name: float(table.attrs[name]) for name in ("fits", "unconverged")}
    return found | {str(name): round(float(value), 4) for name, value in table["auroc"].to_series().items()}


def main() -> None:
    """Measure every number of answers."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("answers", nargs="*", type=int, default=[500, 1000, 2000, 4000])
    parser.add_argument("--columns", type=int, default=100, help="eigenvalues per head")
    parser.add_argument("--json", type=Path, help="write the numbers here as well")
    given = parser.parse_args()
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else f"{torch.get_num_threads()} CPU threads"
    print(device, flush=True)
    rows = []
    for count in given.answers:
        rows.append(measure(count, given.columns))
        print(json.dumps(rows[-1]), flush=True)
    if given.json:
        given.json.write_text(json.dumps({"device": device, "rows": rows}, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
