"""Probes fitted together against a joblib loop of scikit-learn: the same map, on the same cores.

    python benchmarks/probes.py                        450 cells, 800 rows x 576 features, 5 folds, drawn activations
    python benchmarks/probes.py --atlas ATLAS          the same on the default model's own activations at its answers
    python benchmarks/probes.py --device cuda --cells 480 --n 2000 --d 4096 --sample 48

Both do the same work: standardise by the training rows, fit L2 logistic regressions (C = 1) to the same `tol`, score the
rows left out, AUROC. scikit-learn runs as users run it: float32, lbfgs, `max_iter` high enough to converge, one process
a core, one cell per task, the features in a memory-mapped file so that none are sent. Cells are cut into rounds and the two
take turns, so that a machine that slows down slows both. With `--sample` scikit-learn does only so many cells, spread
evenly, and its time is scaled to all of them; the table says so. On a GPU the features lie there already, where a model's
activations are made. `--cores` holds both to so many cores. On a machine that others use too, the processor time of a cell,
printed last, says more than seconds.

Prints a table in Markdown; writes probes.json into $OUT where that is set. MemoryNeeds headwise.probes alone, except --atlas.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import tempfile
import time
from pathlib import Path

import joblib
import numpy as np
import sklearn
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.preprocessing import StandardScaler

from headwise.probes.batched_logistic import fit_cells


def drawn(cells: int, n: int, d: int, device: str) -> tuple[torch.Tensor, np.ndarray]:
    """Activations whose variance falls off over directions about as a model's does, and labels that they half tell."""
    wrong = np.random.default_rng(0).random(n) < 0.6
    random = torch.Generator(device).manual_seed(0)
    spread = (1 + torch.arange(d, device=device)) ** -0.7
    turn = torch.linalg.qr(torch.randn(d, d, generator=random, device=device))[0]
    x = torch.empty(cells, n, d, device=device)
    for cell in range(cells):
        torch.randn(n, d, generator=random, device=device, out=x[cell])
        x[cell, :, cell % 40] += 0.8 * torch.from_numpy(wrong).to(device)
        x[cell] = (x[cell] * spread) @ turn
    return x, wrong


def read(atlas: str, n: int) -> tuple[np.ndarray, np.ndarray]:
    """The default model's activations before the MLP, at the last 15 tokens of question and answer, all layers."""
    import headwise as hw
    from headwise.corpora import Example, batches
    from headwise.instruments import Activations
    from headwise.seam import Structure, observe

    answers = hw.Atlas.open(atlas)["answers"]
    judged = answers["label"].isin(["correct", "wrong"]).values & (answers["answer_tokens"].values > 0)
    answers = answers.isel(example=np.flatnonzero(judged)[:n])
    texts = [f"{a} {b}" for a, b in zip(answers["prompt_ids"].values, answers["answer_ids"].values, strict=True)]
    examples = [Example(str(place), "answer", tuple(map(int, text.split()))) for place, text in enumerate(texts)]
    structure = Structure(hw.load())
    parts: dict[int, np.ndarray] = {}
    for batch in batches(examples, 4096, structure.device):
        sites = Activations(("mlp_in",), list(range(-15, 0)))
        with torch.no_grad(), observe(structure, sites, valid=batch.valid) as seen:
            structure.decoder(input_ids=batch.ids, use_cache=False)
        parts |= dict(zip(batch.indices, seen["activations"]["activation"].values[:, 0], strict=True))
    x = np.stack([parts[place] for place in range(len(examples))])  # (row, layer, token, feature)
    x = np.ascontiguousarray(np.moveaxis(x, 0, 2)).reshape(-1, len(examples), x.shape[-1])
    return x, (answers["label"] == "wrong").values


def alone(path: str, cell: int, wrong: np.ndarray, fold_of: np.ndarray, tolerance: float) -> tuple[list[float], float]:
    """scikit-learn at one cell: the AUROC of every fold, and the seconds of a processor that it took."""
    start = time.process_time()
    x = np.load(path, mmap_mode="r")[cell]
    areas = []
    for fold in np.unique(fold_of):
        train = fold_of != fold
        scaler = StandardScaler()
        fit = LogisticRegression(C=1.0, tol=tolerance, max_iter=10_000).fit(
            scaler.fit_transform(x[train]), wrong[train]
        )
        areas.append(roc_auc_score(wrong[~train], fit.decision_function(scaler.transform(x[~train]))))
    return areas, time.process_time() - start


def spent() -> float:
    """Seconds of processors so far, of this process and of those it made that have ended."""
    return time.process_time() + sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])


def race(x: torch.Tensor, wrong: np.ndarray, args: argparse.Namespace) -> dict[str, object]:
    """Both, in turns."""
    fold_of = np.empty(len(wrong), dtype=np.int64)
    for kind in (True, False):
        rows = np.flatnonzero(wrong == kind)
        fold_of[rows] = np.random.default_rng(0).permutation(len(rows)) % args.folds
    cores = args.cores or len(os.sched_getaffinity(0))
    torch.set_num_threads(cores)
    timed = np.unique(np.linspace(0, len(x) - 1, args.sample or len(x)).round().astype(int))
    rounds = [part for part in np.array_split(np.arange(len(x)), args.rounds) if len(part)]
    for part in rounds[:1]:  # libraries and kernels are loaded
        fit_cells(x[part[0] : part[-1] + 1] if args.device == "cuda" else x[:2], wrong, fold_of)
    together, slow, areas, theirs, loads = 0.0, 0.0, [], {}, []
    cpu, slow_cpu = 0.0, 0.0
    with tempfile.TemporaryDirectory() as folder, joblib.Parallel(n_jobs=cores) as pool:
        path = f"{folder}/x.npy"
        np.save(path, x[torch.from_numpy(timed).to(x.device)].cpu().numpy())
        pool(joblib.delayed(alone)(path, 0, wrong, fold_of, 1.0) for _ in range(cores))
        for part in rounds:
            start, before = time.perf_counter(), spent()
            areas.append(fit_cells(x[part[0] : part[-1] + 1], wrong, fold_of, tolerance=args.tolerance))
            together, cpu = together + time.perf_counter() - start, cpu + spent() - before
            mine = [place for place, cell in enumerate(timed) if part[0] <= cell <= part[-1]]
            start = time.perf_counter()
            found = pool(joblib.delayed(alone)(path, place, wrong, fold_of, args.tolerance) for place in mine)
            slow, slow_cpu = slow + time.perf_counter() - start, slow_cpu + sum(seconds for _, seconds in found)
            theirs |= dict(zip((int(timed[place]) for place in mine), (values for values, _ in found), strict=True))
            loads.append(os.getloadavg()[0])
    ours = np.concatenate([fits.auroc for fits in areas])
    apart = np.abs(ours[list(theirs)].mean(axis=1) - np.array(list(theirs.values())).mean(axis=1))
    return {
        "cells": len(x), "rows": len(wrong), "features": x.shape[2], "folds": args.folds, "tolerance": args.tolerance,
        "device": args.device, "cores": cores, "together_s": together, "timed_cells": len(theirs), "timed_s": slow,
        "scikit_learn_s": slow * len(x) / len(theirs), "ratio": slow * len(x) / len(theirs) / together,
        "together_cpu_ms": 1e3 * cpu / len(x), "scikit_learn_cpu_ms": 1e3 * slow_cpu / len(theirs),
        "steps": float(np.mean([fits.steps.mean() for fits in areas])),
        "converged": bool(all(fits.converged.all() for fits in areas)),
        "auroc_mean": float(ours[list(theirs)].mean()), "auroc_mean_theirs": float(np.mean(list(theirs.values()))),
        "auroc_apart_largest": float(apart.max()), "auroc_apart_mean": float(apart.mean()),
        "load": float(np.mean(loads)), "torch": torch.__version__, "scikit_learn": sklearn.__version__,
        "python": platform.python_version(), "machine": platform.processor() or platform.machine(),
        "gpu": torch.cuda.get_device_name() if args.device == "cuda" else "",
    }  # fmt: skip


def table(row: dict[str, object], source: str) -> str:
    """The race in Markdown."""
    fits = row["cells"] * row["folds"]
    of = "" if row["timed_cells"] == row["cells"] else " (from {timed_cells} cells in {timed_s:.1f} s)".format(**row)
    lines = [
        source + ": {cells} cells, {rows} rows x {features} features, {folds} folds, tol {tolerance}\n",
        "| | seconds | fits a second | mean AUROC |",
        "|---|---|---|---|",
        f"| together, {row['gpu'] or '{cores} cores'} | {{together_s:.2f}} | {fits / row['together_s']:,.0f} | "
        "{auroc_mean:.4f} |",
        f"| scikit-learn, joblib, {{cores}} cores | {{scikit_learn_s:.1f}}{of} | {fits / row['scikit_learn_s']:,.0f} | "
        "{auroc_mean_theirs:.4f} |\n",
        "**{ratio:.1f}x**; AUROC of a cell apart by {auroc_apart_mean:.5f} on average, {auroc_apart_largest:.5f} at most; "
        f"{{steps:.0f}} steps a probe, {'all' if row['converged'] else 'NOT all'} converged; load average {{load:.1f}}; "
        "processor time of a cell {together_cpu_ms:.1f} ms against {scikit_learn_cpu_ms:.1f} ms.",
    ]
    return "\n".join(lines).format(**row)


def main() -> None:
    """Race, print, and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--atlas", help="an atlas of the default model that holds answers")
    parser.add_argument("--activations", help="an .npz with x (cell, row, feature) and wrong (row,)")
    for name, default in {"cells": 450, "n": 800, "d": 576, "folds": 5, "sample": 0, "rounds": 6, "cores": 0}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--tolerance", type=float, default=1e-5)
    parser.add_argument("--device", default="cpu")
    args = parser.parse_args()
    if args.activations:
        file = np.load(args.activations)
        every, wrong = file["x"].reshape(-1, *file["x"].shape[-2:]), file["wrong"]
        x = torch.from_numpy(every[np.linspace(0, len(every) - 1, min(args.cells, len(every))).round().astype(int)])
    elif args.atlas:
        every, wrong = read(args.atlas, args.n)
        x = torch.from_numpy(every)
    else:
        x, wrong = drawn(args.cells, args.n, args.d, args.device)
    row = race(x.to(args.device), wrong, args)
    source = "Drawn activations" if not (args.atlas or args.activations) else "Activations of SmolLM2-135M-Instruct"
    print(table(row, source))
    if os.environ.get("OUT"):
        Path(os.environ["OUT"], "probes.json").write_text(json.dumps({"source": source, **row}, indent=1))


if __name__ == "__main__":
    main()
