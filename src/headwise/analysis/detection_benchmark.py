"""Every score of wrong answers on several question sets: one table, a ranking, and what each costs.

Input: the Dataset of the study `uncertainty` of one model for each set. Output: a Dataset with the dim ``question_set``.

- **Per set**: the study's own numbers, with their intervals.
- **Pooled**: the mean over sets of AUROC, AUPRC, PRR, ECE and gains. Scores of different sets are never thrown together, since
  a hard set has high scores and wrong answers, and would pass for detection. The interval is that of these sets
  (`stats.mean_of_intervals`): other questions of the same kind, not other sets. Pooled gains are tested (their intervals per
  set are symmetric, so z is as good as DeLong's), with q-values over the scores.
- **Ranked**: Friedman's test and Nemenyi's critical difference over sets (`stats.friedman_nemenyi`), which do ask about other
  sets, and see little with few of them. Rows that see the question alone are not ranked.
- **Cost**: seconds over a plain answer, as measured in each run; 1 costs nothing beyond the answer.

A score that one set lacks is left out and named; so is a set with too few wrong or correct answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from scipy.special import ndtr, ndtri

from headwise.core.dims import COST_CLASS, COVERAGE, DETECTOR, QUESTION_SET
from headwise.core.errors import AtlasError, DataError
from headwise.core.markup import card, paragraph, table
from headwise.figures.provenance import model_name, provenance_of
from headwise.stats import benjamini_hochberg, friedman_nemenyi, mean_of_intervals

METRICS = ("auroc", "auroc_within", "auprc", "prr", "ece", "gain", "gain_logprob")
GAINS = ("gain", "gain_logprob")
LABELS = {
    "auroc": "AUROC", "auroc_within": "AUROC among similar questions", "auprc": "AUPRC", "prr": "PRR", "ece": "ECE",
    "gain": "gain over the question", "gain_logprob": "gain over the smallest log-probability",
}  # fmt: skip
QUESTION = "question"  # kind of a row that sees nothing of the model
ANSWER = "answer"  # the cost of a plain answer
ALPHA = 0.05
MIN_RANKED = 3  # scores
ENDS = ("", "_low", "_high")
_POOLED = (*(f"{name}{end}" for name in METRICS for end in ENDS), *(f"{name}_q" for name in GAINS), "seconds_ratio")


@dataclass(frozen=True)
class DetectionBenchmark:
    """All scores on all sets. Made by `pooled_benchmark` from atlases, by `headwise.bench_detection` from a model.

    Examples:
        >>> found = pooled_benchmark({"first": uncertainty, "second": uncertainty})
        >>> found
        <DetectionBenchmark SmolLM2-135M-Instruct: 38 scores on 2 question sets>
        >>> found.frame().columns[:4].tolist()
        ['auroc', 'auroc_low', 'auroc_high', 'auprc']
    """

    model: str  # its name
    table: xr.Dataset
    """per set, (question_set, detector); and pooled, (detector,), under names with ``pooled_``"""
    undecided: Mapping[str, str] = field(default_factory=dict)
    """set -> why it could not be judged"""

    @property
    def sets(self) -> list[str]:
        """The sets that were judged."""
        return [str(name) for name in self.table[QUESTION_SET].values]

    def ordered(self) -> list[str]:
        """The scores by pooled AUROC, the best first."""
        order = np.argsort(-self.table["pooled_auroc"].values, kind="stable")
        return [str(name) for name in self.table[DETECTOR].values[order]]

    def frame(self, question_set: str | None = None) -> pd.DataFrame:
        """One row per score, the best first: its numbers on one set, or pooled."""
        one = self._one(question_set)
        columns = {f"{name}{end}": one[f"{name}{end}"] for name in METRICS for end in ENDS}
        columns |= {f"{name}_q": one[f"{name}_q"] for name in GAINS}
        columns |= {name: one[name] for name in ("seconds_ratio", "kind", "cost", "paper", "link")}
        first = ["auroc", "auprc", "prr", "ece"]
        names = [f"{name}{end}" for name in first for end in ENDS]
        names += [name for name in columns if name not in names]
        found = pd.DataFrame(
            {name: columns[name].values for name in names}, index=self.table[DETECTOR].values.astype(str)
        )
        if question_set is None and "mean_rank" in self.table:
            found.insert(0, "mean_rank", self.table["mean_rank"].values)
            found = found[[*(name for name in found if name != "mean_rank"), "mean_rank"]]
        return found.rename_axis("score").loc[sorted(found.index, key=self.ordered().index)]

    def long_frame(self) -> pd.DataFrame:
        """One row per set and score, the pooled rows last: what the CSV file holds."""
        parts = {name: self.frame(name) for name in self.sets} | {"pooled": self.frame()}
        return pd.concat(parts, names=[QUESTION_SET]).reset_index()

    def latex(self) -> str:
        """The table of a paper (package booktabs): AUROC per set, then the pooled numbers with 95 % intervals."""
        return _latex(self)

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "model": self.model,
            "sets": {
                name: {"n_wrong": int(one["n_wrong"]), "n_right": int(one["n_right"]), "scores": _records(self.frame(name))}
                for name in self.sets
                for one in (self.table.sel({QUESTION_SET: name}),)
            },
            "pooled": _records(self.frame()),
            "ranking": {key: self.table.attrs[key] for key in ("friedman_p", "critical_difference") if key in self.table.attrs},
            "undecided": dict(self.undecided),
            "left_out": list(self.table.attrs["left_out"]),
        }  # fmt: skip

    def _one(self, question_set: str | None) -> xr.Dataset:
        if question_set is not None:
            return self.table.sel({QUESTION_SET: question_set})
        pooled = {name: self.table[f"pooled_{name}"] for name in _POOLED}
        return xr.Dataset(pooled, coords={name: self.table[name] for name in ("kind", "cost", "paper", "link")})

    def __repr__(self) -> str:
        return (
            f"<DetectionBenchmark {self.model}: {self.table.sizes[DETECTOR]} scores on {len(self.sets)} question sets>"
        )

    def _repr_html_(self) -> str:
        frame = self.frame()[["auroc", "prr", "gain_logprob"]]
        rows = [(name, *(f"{value:.3f}" for value in frame.loc[name])) for name in map(str, frame.index)]
        header = ("score", *(LABELS[str(name)] for name in frame.columns))
        return card(f"Detection benchmark of {self.model}", table(rows, header=header), paragraph(", ".join(self.sets)))


def pooled_benchmark(
    datasets: Mapping[str, xr.Dataset], undecided: Mapping[str, str] | None = None
) -> DetectionBenchmark:
    """Put the study `uncertainty` of several question sets into one table.

    Args:
        datasets: its Dataset by the name of the set; all of one model.
        undecided: sets that could not be judged, with the reason.

    Returns:
        The table, per set and pooled.

    Examples:
        >>> found = pooled_benchmark({"first": uncertainty, "second": uncertainty}, {"third": "there are 3 wrong answers"})
        >>> found.sets, found.undecided["third"]
        (['first', 'second'], 'there are 3 wrong answers')
    """
    if not datasets:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in (undecided or {}).items())
        raise DataError(
            f"No question set could be judged ({reasons or 'none was given'}); use more questions, or sets of which the model "
            "gets some right and some wrong."
        )
    origins = {name: provenance_of(one).get("model", {}) for name, one in datasets.items()}
    digests = {str(origin.get("digest")) for origin in origins.values()}
    if len(digests) > 1:
        raise AtlasError(
            f"The sets {', '.join(datasets)} were answered by different models ({', '.join(sorted(digests))}); compare sets "
            "of one model."
        )
    shared = [
        str(name)
        for name in next(iter(datasets.values()))[DETECTOR].values
        if all(name in one[DETECTOR].values for one in datasets.values())
    ]
    left_out = sorted({str(name) for one in datasets.values() for name in one[DETECTOR].values} - set(shared))
    each = [_numbers(one.sel({DETECTOR: shared})) for one in datasets.values()]
    whole = xr.concat(each, dim=pd.Index(list(datasets), name=QUESTION_SET), combine_attrs="drop", join="outer")
    first = next(iter(datasets.values())).sel({DETECTOR: shared})
    whole = whole.assign_coords({name: first[name] for name in ("kind", "cost", "paper", "link")})
    whole = whole.assign(_pooled(whole)).assign_attrs(left_out=left_out)
    name = model_name(provenance_of(first)).rsplit("/", 1)[-1] or "the model"
    return DetectionBenchmark(name, _ranked(whole), dict(undecided or {}))


def rows_of(frame: pd.DataFrame) -> dict[str, dict[str, Any]]:
    """The rows of a table of scores by name."""
    rows = frame.reset_index().to_dict(orient="records")
    return {str(row["score"]): {str(key): value for key, value in row.items()} for row in rows}


def _numbers(dataset: xr.Dataset) -> xr.Dataset:
    """What of one set goes into the table."""
    names = [f"{name}{end}" for name in METRICS for end in ENDS]
    names += [f"{name}_q" for name in GAINS]
    names += [*(f"risk{end}" for end in ENDS), "ece_null", "detectable", "seconds"]
    found = dataset[names]
    found = found.drop_vars([name for name in found.coords if name not in (DETECTOR, COVERAGE, COST_CLASS)])
    wrong = dataset["wrong"].values
    return found.assign(n_wrong=int(wrong.sum()), n_right=int((~wrong).sum()), seconds_ratio=_cost(dataset))


def _cost(dataset: xr.Dataset) -> xr.DataArray:
    """(detector,): seconds of the answer and of what the score needs, over those of the answer."""
    seconds = dict(zip(dataset[COST_CLASS].values.astype(str), dataset["seconds"].values.astype(float), strict=True))
    answer = seconds.get(ANSWER, np.nan)
    ratios = [
        1.0 if cost in (ANSWER, QUESTION) else (answer + seconds.get(cost, np.nan)) / answer
        for cost in dataset["cost"].values.astype(str)
    ]
    return xr.DataArray(ratios, dims=DETECTOR)


def _pooled(whole: xr.Dataset) -> dict[str, xr.DataArray]:
    found: dict[str, xr.DataArray] = {"pooled_seconds_ratio": whole["seconds_ratio"].mean(QUESTION_SET)}
    for name in METRICS:
        ends = (whole[f"{name}{end}"].transpose(QUESTION_SET, DETECTOR).values for end in ENDS)
        for end, values in zip(ENDS, mean_of_intervals(*ends), strict=True):
            found[f"pooled_{name}{end}"] = xr.DataArray(values, dims=DETECTOR)
    for name in GAINS:
        found[f"pooled_{name}_q"] = _q_values(found[f"pooled_{name}"], found[f"pooled_{name}_low"], whole)
    return found


def _q_values(gain: xr.DataArray, low: xr.DataArray, whole: xr.Dataset) -> xr.DataArray:
    """Of pooled gains, over the scores that each set has a q-value of."""
    error = (gain - low).values / -ndtri(0.025)
    tested = np.isfinite(whole[f"{GAINS[0]}_q"].values).all(axis=0) & np.isfinite(error) & (error > 0)
    q = np.full(gain.shape, np.nan)
    q[tested] = benjamini_hochberg(2 * ndtr(-np.abs(gain.values[tested]) / error[tested]))
    return xr.DataArray(q, dims=DETECTOR)


def _ranked(whole: xr.Dataset) -> xr.Dataset:
    """With mean ranks, where there are enough sets and scores."""
    scored = whole["kind"].values.astype(str) != QUESTION
    values = whole["auroc"].transpose(QUESTION_SET, DETECTOR).values
    scored &= np.isfinite(values).all(axis=0)
    if len(values) < 2 or scored.sum() < MIN_RANKED:
        return whole
    ranking = friedman_nemenyi(values[:, scored], level=ALPHA)
    for name in ("mean_rank", "low", "high"):
        column = np.full(len(scored), np.nan)
        column[scored] = getattr(ranking, name)
        whole[name if name == "mean_rank" else f"mean_rank_{name}"] = (DETECTOR, column)
    return whole.assign_attrs(friedman_p=ranking.p, critical_difference=ranking.critical_difference)


def _records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows as JSON; what is not known is null."""
    return [{key: _known(value) for key, value in row.items()} for row in rows_of(frame).values()]


def _known(value: Any) -> Any:
    return None if isinstance(value, float) and not np.isfinite(value) else value


# ---- LaTeX ----------------------------------------------------------------------------------------------------------

_SPECIAL = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}",
}  # fmt: skip


def escape_latex(text: str) -> str:
    r"""A text in which LaTeX finds no command.

    >>> escape_latex("nq_open & 5 %")
    'nq\\_open \\& 5 \\%'
    """
    return "".join(_SPECIAL.get(sign, sign) for sign in text)


def _latex(found: DetectionBenchmark) -> str:
    pooled, sets = found.frame(), found.sets
    each = {name: found.frame(name)["auroc"] for name in sets}
    best = pooled.loc[pooled["kind"] != QUESTION, "auroc"].max()
    columns = "l" + "r" * len(sets) + "rrrrr"
    span = rf"\multicolumn{{{len(sets)}}}{{c}}{{AUROC}}"
    lines = [
        f"% {escape_latex(found.model)}; headwise bench detection; needs the packages booktabs",
        rf"\begin{{tabular}}{{{columns}}}",
        r"\toprule",
        rf" & {span} & \multicolumn{{4}}{{c}}{{mean over sets}} & cost \\",
        rf"\cmidrule(lr){{2-{len(sets) + 1}}} \cmidrule(lr){{{len(sets) + 2}-{len(sets) + 5}}}",
        " & ".join(["Score", *map(escape_latex, sets), "AUROC [95 \\%]", "AUPRC", "PRR", "ECE", r"$\times$"]) + r" \\",
        r"\midrule",
    ]
    for name, row in rows_of(pooled).items():
        bold = bool(row["auroc"] == best)
        area = f"{row['auroc']:.3f} [{row['auroc_low']:.3f}, {row['auroc_high']:.3f}]"
        cells = [escape_latex(name), *(f"{each[one][name]:.3f}" for one in sets)]
        cells += [rf"\textbf{{{area}}}" if bold else area]
        cells += [f"{row['auprc']:.3f}", f"{row['prr']:.3f}", f"{row['ece']:.3f}", f"{row['seconds_ratio']:.2f}"]
        lines.append(" & ".join(cells).replace("nan", "--") + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", ""])
