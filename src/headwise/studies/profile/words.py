"""The profile in words: where does each head attend?

The sentences about single maps come from `describe.narrator`; here are the roles (induction head, previous-token head) and
what is specific to attention.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from functools import cached_property

import numpy as np
import xarray as xr

from headwise.core.dims import EXAMPLE, HEAD, LAYER, STATISTIC
from headwise.describe import maps, narrator
from headwise.describe.narrative import Narrative, reading
from headwise.describe.phrases import Accessor, model_of, size_of
from headwise.describe.writer import Writer, listed
from headwise.figures.head_maps import NamedMap
from headwise.studies.profile.heads import HALF, MIN_ROLE_SCORE, has_role

MAX_ROLE_HEADS = 8  # named per role
MAX_REGISTERS = 8  # named
MIN_CELLS_FOR_CHANCE = 100  # from which the number of intervals that miss by chance is reported

# statistic: one head with this role, several of them, and whether their absence is worth a sentence
ROLES = {
    "previous": ("previous-token head", "previous-token heads", True),
    "induction": ("induction head", "induction heads", True),
    "duplicate": ("duplicate-token head", "duplicate-token heads", True),
    "diagonal": ("head that attends to its own token", "heads that attend to their own token", False),
    "delimiter": ("head that attends to delimiters", "heads that attend to delimiters", False),
}


class ProfileAccessor(Accessor):
    """The maps of a profile by statistic, and the examples behind them. Maps are (layer, head)."""

    def __init__(self, dataset: xr.Dataset) -> None:
        super().__init__(dataset)
        self._maps: dict[tuple[str, str], xr.DataArray] = {}
        self.keys = [str(key) for key in dataset[STATISTIC].values]
        self.total = len(self.layers) * len(self.heads)
        self.measured = [key for key in self.keys if bool(self.map(key).notnull().any())]

    def map(self, key: str, variable: str = "value") -> xr.DataArray:
        if (key, variable) not in self._maps:
            self._maps[key, variable] = self.dataset[variable].sel({STATISTIC: key})
        return self._maps[key, variable]

    def named(self, key: str) -> NamedMap:
        ends = self.map(key, "low"), self.map(key, "high")
        label, unit = self.text(key, "label"), self.text(key, "unit")
        uniform = self.uniform(key)
        return NamedMap(key, label, self.map(key).transpose(LAYER, HEAD), *ends, uniform, "a uniform head", unit=unit)

    @cached_property
    def named_maps(self) -> list[NamedMap]:
        return [self.named(key) for key in self.measured]

    def text(self, key: str, coord: str) -> str:
        return str(self.dataset[coord].sel({STATISTIC: key}).values)

    def label(self, key: str) -> str:
        return self.text(key, "label")

    def labels(self, keys: list[str]) -> list[str]:
        return [self.label(key) for key in keys]

    def uniform(self, key: str) -> float:
        """The mean level of a head with uniform attention; NaN where that is meaningless."""
        level = self.map(key, "uniform").values
        return float(level[np.isfinite(level)].mean(dtype=float)) if np.isfinite(level).any() else math.nan

    def half_width(self, key: str) -> float:
        """Half the width of the 95 % confidence interval in the median head; NaN without intervals."""
        half = (self.map(key, "high").values - self.map(key, "low").values) / 2
        return float(np.median(half[np.isfinite(half)])) if np.isfinite(half).any() else math.nan

    def has_intervals(self, key: str) -> bool:
        return math.isfinite(self.half_width(key))

    def missing(self, key: str) -> int:
        return int(self.map(key).isnull().sum())

    def example_groups(self) -> list[tuple[list[str], Counter[str]]]:
        """Statistics measured on the same examples, with the registers of these; the largest group first."""
        if "per_example" not in self.dataset:
            return []
        seen = self.dataset["per_example"].notnull().any((LAYER, HEAD)).transpose(STATISTIC, EXAMPLE).values
        registers = [str(name) for name in self.dataset["register"].values]
        groups: dict[tuple[bool, ...], list[str]] = {}
        for key, row in zip(self.keys, seen, strict=True):
            if row.any():
                groups.setdefault(tuple(row.tolist()), []).append(key)
        found = [
            (keys, Counter(name for name, used in zip(registers, row, strict=True) if used))
            for row, keys in groups.items()
        ]
        return sorted(found, key=lambda group: -len(group[0]))


def _overview(writer: Writer, profile: ProfileAccessor) -> Iterator[str]:
    what = writer.count(len(profile.keys), "statistics", "statistic")
    each = "its only head" if profile.total == 1 else f"each of its {writer.count(profile.total, 'total', 'head')}"
    yield (
        f"A profile of where the attention heads of {model_of(profile)} attend: {what} for {each} "
        f"({size_of(writer, profile)}), one layer x head map per statistic."
    )
    data = profile.data.get("name")
    of_data = f" of the data '{data}'" if data else ""
    groups = profile.example_groups()
    for index, (keys, registers) in enumerate(groups):
        count = writer.count(registers.total(), f"examples {keys[0]}", "example")
        over = f"over {count}{of_data if index == 0 else ''}{_registers(writer, registers)}"
        if len(groups) == 1:
            yield f"Each value is the mean {over}."
        elif index == 0:
            yield f"Most values are means {over}."
        else:
            one = len(keys) == 1
            yield f"{listed(profile.labels(keys))} {'is a mean' if one else 'are means'} {over}."


def _registers(writer: Writer, registers: Counter[str]) -> str:
    if len(registers) == 1:
        return f" ({next(iter(registers))})"
    if len(registers) > MAX_REGISTERS:
        return f" in {writer.count(len(registers), 'registers', 'register')}"
    return f" ({listed(writer.count(count, 'register') + f' {name}' for name, count in registers.most_common())})"


def _axes(writer: Writer, profile: ProfileAccessor) -> Iterator[str]:
    if any(profile.has_intervals(key) for key in profile.measured):
        yield "In the detail, the range in brackets after a head is the 95 % confidence interval of its mean."
    for key in profile.measured:
        yield narrator.value_range(writer, profile.named(key), "no uniform baseline")


def _details(writer: Writer, profile: ProfileAccessor) -> Iterator[str]:
    """One entry per statistic: what it is, its strongest heads, how far from uniform they are, where they cluster."""
    for key in profile.keys:
        intro = f"{profile.label(key)}: {profile.text(key, 'definition')}."
        if key not in profile.measured:
            yield f"{intro} It was not measured."
            continue
        sentences = (
            f"{intro} {_strongest(writer, profile, key)}.",
            narrator.against_baseline(writer, profile.named(key)),
            narrator.missing_heads(writer, key, profile.missing(key)),
        )
        yield " ".join(filter(None, sentences))


def _observations(writer: Writer, profile: ProfileAccessor) -> Iterator[str]:
    """What holds over the whole model."""
    yield _sinks(writer, profile)
    for key in ROLES:
        if key in profile.measured:
            yield _role(writer, profile, key)
    yield _nearer(writer, profile)
    every = profile.named_maps
    if every:
        yield narrator.boxes(writer, every)
    yield narrator.concentration(writer, every)
    yield from (*narrator.depth_trends(writer, every), *narrator.correlated_maps(writer, every))


def _role_heads(profile: ProfileAccessor, key: str) -> list[maps.HeadValue]:
    """The heads with this role, strongest first."""
    values = profile.map(key).transpose(LAYER, HEAD)
    return maps.strongest(values.where(values.copy(data=has_role(profile.dataset, key))), profile.total)


def _strongest(writer: Writer, profile: ProfileAccessor, key: str) -> str:
    text = narrator.strongest_heads(writer, profile.named(key))
    if key == "entropy" and profile.total > 3:
        (least,) = maps.strongest(profile.map(key), 1, by="smallest")
        text += f"; the most focused head is {least.name}, {writer.number(least.value, f'value {key} {least.name}')}"
    return text


def _sinks(writer: Writer, profile: ProfileAccessor) -> str:
    if "sink" not in profile.measured:
        return ""
    over, uniform, reference = maps.share_over(profile.map("sink"), HALF), profile.uniform("sink"), ""
    if math.isfinite(uniform):
        reference = f"; a uniform head would put {writer.percent(uniform, 'uniform-percent sink')} there"
    if not over.count:
        return f"No head puts more than half of its attention on the first token{reference}."
    count, total = writer.count(over.count, f"over sink {HALF}"), writer.count(over.total, "measured sink", "head")
    share = writer.percent(over.share, f"over-percent sink {HALF}")
    verb = "puts more than half of its" if over.count == 1 else "put more than half of their"
    return f"{count} of {total} ({share}) {verb} attention on the first token{reference}."


def _role(writer: Writer, profile: ProfileAccessor, key: str) -> str:
    one, several, tell_absence = ROLES[key]
    heads = _role_heads(profile, key)
    if not heads and not tell_absence:
        return ""
    rule = "whole 95 % interval" if profile.has_intervals(key) else "value"
    rule += f", corrected for a uniform head, above {writer.number(MIN_ROLE_SCORE, 'constant')}"
    if not heads:
        (best,) = maps.strongest(profile.map(key), 1)
        value = writer.number(best.value, f"value {key} {best.name}")
        return f"No {one} ({rule}); the nearest to it is {best.name} ({value})."
    names = [
        f"{head.name} ({writer.number(head.value, f'value {key} {head.name}')})" for head in heads[:MAX_ROLE_HEADS]
    ]
    if len(heads) > MAX_ROLE_HEADS:
        names.append(f"{writer.count(len(heads) - MAX_ROLE_HEADS, f'role-rest {key}')} more")
    count = writer.count(len(heads), f"role {key}")
    return f"{count} {one if len(heads) == 1 else several} ({rule}): {listed(names)}."


def _nearer(writer: Writer, profile: ProfileAccessor) -> str:
    if "distance" not in profile.measured or not math.isfinite(profile.uniform("distance")):
        return ""
    values, uniform = profile.map("distance"), profile.map("distance", "uniform")
    near, total = int((values < uniform).sum()), int(values.notnull().sum())
    if near * 2 <= total or total == 1:
        return ""
    all_heads = writer.count(total, "measured distance", "head")
    who = f"All {all_heads}"
    if near < total:
        who = f"{writer.count(near, 'nearer')} of {all_heads} ({writer.percent(near / total, 'nearer-percent')})"
    return f"{who} attend nearer, on average, than a uniform head would."


def _caveats(writer: Writer, profile: ProfileAccessor) -> Iterator[str]:
    yield from _intervals(writer, profile)
    yield narrator.unsettled_order(writer, profile.named_maps)
    if "sink" in profile.measured:
        yield (
            "A high share on the first token is ordinary in decoder models: unused attention goes there, and it says little "
            "about that token."
        )
    random: list[str] = [key for key in ("induction", "duplicate") if key in profile.measured]
    if random:
        are, show = ("is", "it shows") if len(random) == 1 else ("are", "they show")
        yield (
            f"{listed(profile.labels(random))} {are} measured on repeated random tokens: {show} what a head can do, "
            "not how often it does so in text."
        )


def _intervals(writer: Writer, profile: ProfileAccessor) -> Iterator[str]:
    widths = {key: profile.half_width(key) for key in profile.measured if profile.has_intervals(key)}
    if not widths:
        yield "There are no intervals, so any value may be due to the choice of examples."
        return
    parts = [
        f"± {writer.number(widths[key], f'half-width {key}', digits=2)} for {profile.label(key)}"
        for key in ("sink", "induction")
        if key in widths
    ]
    typical = f" (of the median head: {listed(parts)})" if parts else ""
    yield (
        f"The 95 % intervals{typical} show how the mean varies over examples of the same kind, not over other kinds "
        "of text."
    )
    cells = sum(profile.total - profile.missing(key) for key in widths)
    if cells >= MIN_CELLS_FOR_CHANCE:
        yield (
            f"With {writer.count(cells, 'cells', 'cell')}, about {writer.count(round(cells / 20), 'chance')} "
            "of these intervals miss the true mean by chance, and the largest values of a map tend to be slightly too "
            "large."
        )


def _interpretation(writer: Writer, profile: ProfileAccessor) -> Iterator[str]:
    """Are the heads specialists, or do most of them rest on the first token?"""
    if "sink" not in profile.measured or profile.total < narrator.MIN_HEADS:
        yield from narrator.spread(writer, profile.named_maps)
        return
    over = maps.share_over(profile.map("sink"), HALF)
    share = writer.percent(over.share, f"over-percent sink {HALF}")
    roles = {key: len(_role_heads(profile, key)) for key in ROLES if key in profile.measured}
    named = [
        f"{writer.count(count, f'role {key}')} {ROLES[key][0] if count == 1 else ROLES[key][1]}"
        for key, count in roles.items()
        if count
    ]
    most = (
        "most heads rest on the first token"
        if over.share > HALF
        else "at least half of the heads attend to the text more than to its first token"
    )
    few = (
        f", and few have a role that one statistic shows ({listed(named)})"
        if named
        else ", and none has a role that one statistic shows"
    )
    against = [
        "a head at rest on these texts may work on others",
        "attention shows where a head reads, not what it writes",
    ]
    if "norm_ratio" in profile.measured:
        rho = maps.rank_correlation(profile.map("sink"), profile.map("norm_ratio"))
        if rho == rho:
            rank = writer.fixed(rho, "correlation sink norm_ratio")
            against.insert(0, f"weight on the first token and the norm of what a head writes have a rank correlation of {rank}"
                              f"{', so heads at rest do write less' if rho < 0 else ', so these heads do write'}")  # fmt: skip
    yield from reading(f"{most} ({share} put over half of their weight on that token){few}", against, narrator.ABLATE)


def _headline(writer: Writer, profile: ProfileAccessor) -> str:
    first = f"{writer.count(len(profile.keys), 'statistics', 'map')} of where the heads of {model_of(profile)} attend."
    found = []
    if "sink" in profile.measured and profile.total > 1:
        share = writer.percent(maps.share_over(profile.map("sink"), HALF).share, f"over-percent sink {HALF}")
        found.append(f"{share} of them put over half of their attention on the first token")
    for key in ("previous", "induction"):
        heads = _role_heads(profile, key) if key in profile.measured else []
        if heads:
            value = writer.number(heads[0].value, f"value {key} {heads[0].name}")
            found.append(f"the strongest {ROLES[key][0]} is {heads[0].name} ({value})")
    if not found:
        return first
    second = "; ".join(found)
    return f"{first} {second[0].upper()}{second[1:]}."


describe = Narrative(
    "Where each head attends",
    ProfileAccessor,
    (_overview, _axes, _details, _observations, _caveats),
    _headline,
    anomalies=lambda writer, profile: narrator.anomalies(writer, profile.named_maps),
    interpretation=_interpretation,
)
