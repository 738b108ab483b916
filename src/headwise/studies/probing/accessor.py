"""The parts of a probing Dataset by name, for its words. Datasets of older versions lack some of them."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import xarray as xr

from headwise.core.dims import DETECTOR, LAYER, OTHERS, SITE, TOKEN, TOPIC, TRAINED_ON
from headwise.core.parsing import parse_attribute
from headwise.describe.phrases import Accessor
from headwise.describe.writer import Writer
from headwise.stats.multiple_testing import ALPHA
from headwise.stats.power import minimum_detectable_auroc


class BestCell(NamedTuple):
    """The layer and token with the highest AUROC."""

    layer: int
    token: str
    value: float


class ProbingAccessor(Accessor):
    """The parts of a probing Dataset by name. Maps are (layer, token), of the first site unless another is given."""

    def __init__(self, dataset: xr.Dataset) -> None:
        super().__init__(dataset)
        self.sites = [str(site) for site in dataset[SITE].values]
        self.tokens = [str(token) for token in dataset[TOKEN].values]
        self.counts: dict[str, int] = parse_attribute(dataset.attrs, "counts", dict[str, int], "{}")
        self.leak: dict[str, dict[str, float]] = parse_attribute(
            dataset.attrs, "leak", dict[str, dict[str, float]], "{}"
        )

    def map(self, site: str | None = None, variable: str = "auroc") -> np.ndarray:
        """(layer, token) in double precision."""
        found = self.dataset[variable]
        if SITE in found.dims:
            found = found.sel({SITE: site or self.sites[0]})
        return found.transpose(LAYER, TOKEN).values.astype(float)

    def per_site(self, variable: str, site: str | None = None) -> float:
        """A variable with one number per site, such as ``nested``."""
        return float(self.dataset[variable].sel({SITE: site or self.sites[0]}))

    def best(self, site: str | None = None) -> BestCell:
        values = self.map(site)
        layer, token = np.unravel_index(int(np.nanargmax(values)), values.shape)
        return BestCell(int(layer), self.tokens[int(token)], float(values[layer, token]))

    def best_interval(self, site: str | None = None) -> tuple[float, float, float]:
        """AUROC of the best cell and the ends of its interval."""
        best = self.best(site)
        at = (best.layer, self.tokens.index(best.token))
        return best.value, float(self.map(site, "low")[at]), float(self.map(site, "high")[at])

    def nested(self, site: str | None = None) -> tuple[float, float, float]:
        """The same of the cell that is chosen on other folds than it is evaluated on."""
        value, low, high = (self.per_site(name, site) for name in ("nested", "nested_low", "nested_high"))
        return value, low, high

    def beats_chance(self, site: str | None = None) -> bool:
        """Whether the best cell is better than the best with permuted labels."""
        return self.per_site("best_p", site) < ALPHA

    def token_means(self, site: str | None = None) -> dict[str, float]:
        """Token -> mean AUROC over layers, where it was measured."""
        columns = zip(self.tokens, self.map(site).T, strict=True)
        return {token: float(np.nanmean(column)) for token, column in columns if np.isfinite(column).any()}

    def row(self, name: str, column: str = "table") -> tuple[float, float, float] | None:
        """A row of the table with its interval, in one of its columns; None where it is missing."""
        value = "table_auroc" if column == "table" else column
        if value not in self.dataset or name not in self.rows():
            return None
        found = self.dataset.sel({DETECTOR: name})
        values = float(found[value]), float(found[f"{column}_low"]), float(found[f"{column}_high"])
        return values if all(math.isfinite(one) for one in values) else None

    def rows(self, *kinds: str) -> dict[str, float]:
        """Rows of the table with their AUROC, of these kinds or all."""
        values = zip(*(self.dataset[name].values for name in (DETECTOR, "kind", "table_auroc")), strict=True)
        return {str(name): float(value) for name, kind, value in values if not kinds or str(kind) in kinds}

    @property
    def strata(self) -> str:
        """What is alike in questions that are compared, such as "topic x difficulty (61 strata)"; empty where unknown."""
        return str(self.dataset.attrs.get("strata", ""))

    @property
    def question_reference(self) -> str | None:
        """The strongest row that knows only the question; None where there is none."""
        name = str(self.dataset.attrs.get("question_reference", ""))
        return name if name in self.rows("question") else None

    def has_within(self) -> bool:
        """Whether answers were compared within strata."""
        return "within" in self.dataset

    def nested_within(self, site: str | None = None) -> tuple[float, float, float]:
        """AUROC within strata of the cell that is chosen on other strata than it is evaluated on."""
        ends = ("nested_within", "nested_within_low", "nested_within_high")
        value, low, high = (self.per_site(name, site) for name in ends)
        return value, low, high

    def beats_question(self, site: str | None = None) -> bool:
        """Whether, among questions that are alike, the probe separates wrong from correct answers."""
        return self.has_within() and self.per_site("within_best_p", site) < ALPHA and self.nested_within(site)[1] > 0.5

    def detectable(self, tests: int, *, within: bool = False) -> float:
        """The smallest AUROC that one of so many tests finds in 80 % of cases; NaN where the answers are not stored."""
        wrong = self.dataset["wrong"].values.astype(bool)
        if not within:
            return minimum_detectable_auroc(int(wrong.sum()), int((~wrong).sum()), tests=tests)
        stratum = self.dataset["stratum"].values.astype(int)
        counts = [np.bincount(stratum[kind], minlength=stratum.max() + 1) for kind in (wrong, ~wrong)]
        return minimum_detectable_auroc(*counts, tests=tests)

    def without_exact(self) -> int:
        """Answers in which no exact answer was found."""
        return sum(self.counts.get(f"without_exact_{kind}", 0) for kind in ("wrong", "correct"))

    def transfer(self, variable: str) -> dict[str, list[float]] | None:
        """Inside a group, across (from one to another), and from all others to one; None where there is no matrix."""
        if variable not in self.dataset:
            return None
        grid = self.dataset[variable].transpose(TRAINED_ON, TOPIC)
        rows, columns = ([str(name) for name in grid[dim].values] for dim in (TRAINED_ON, TOPIC))
        found: dict[str, list[float]] = {"inside": [], "across": [], OTHERS: []}
        for row, values in zip(rows, grid.values, strict=True):
            for column, value in zip(columns, values, strict=True):
                if math.isfinite(value):
                    found[OTHERS if row == OTHERS else "inside" if row == column else "across"].append(float(value))
        return found if all(found.values()) else None


def with_ends(writer: Writer, values: tuple[float, float, float], source: str) -> str:
    """``0.83 (0.79 to 0.87)``."""
    value, low, high = values
    ends = [writer.number(end, f"{side} {source}") for end, side in ((low, "low"), (high, "high"))]
    return f"{writer.number(value, f'value {source}')} ({ends[0]} to {ends[1]})"
