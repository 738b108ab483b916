"""Do two atlases hold the same numbers? Compares every variable of every study, and exits with 1 if they do not.

    python scripts/compare_atlases.py before/atlas after/atlas
    python scripts/compare_atlases.py A B --tolerance 1e-6 --renames renames.json --all

Read as stored (Zarr groups, no Headwise), so that atlases of any version can be compared. For every variable: same bits,
or the largest absolute difference, or missing. A difference counts if it exceeds the tolerance, absolute or relative to
the variable's largest magnitude. Times, versions, paths and machines never count; attributes and variables that hold
prose (titles, definitions) are listed and do not count, unless ``--prose`` is given.

Names that a newer version changed are looked up in `RENAMES`, or in a JSON file of the same shape, which adds to it:
``{"studies": {old: new}, "variables": {...}, "dims": {...}, "values": {...}, "attributes": {...}}``; ``values`` are the
entries of string coordinates, such as the name of a statistic. A name may be given per study as ``"profile/moved"``.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

Renames = Mapping[str, Mapping[str, str]]
RENAMES: Renames = {
    "studies": {},
    "variables": {"few_laplacian": "laplacian_mean", "kept": "circuit_size"},
    "dims": {"kept": "circuit_size", "place": "index", "subject": "condition"},
    "values": {"moved": "output_norm_ratio", "few_laplacian": "laplacian_mean"},
    "attributes": {},
}
VOLATILE = {"created", "environment", "finished", "headwise", "path", "seconds", "started", "study_version", "version"}
PROSE = {"comment", "definition", "description", "label", "long_name", "notes", "reference", "source", "title", "units"}
SAME, CLOSE, WORDED, DIFFERENT, MISSING, ADDED = (
    "same bits",
    "close",
    "reworded",
    "differs",
    "missing in B",
    "only in B",
)
WRONG = (DIFFERENT, MISSING, ADDED)


class Row(NamedTuple):
    """What became of one variable, attribute or file of A."""

    study: str
    name: str
    verdict: str
    note: str = ""


class Names:
    """Old names -> new names; a name for one study wins over the same name for all."""

    def __init__(self, renames: Renames):
        self.renames = renames

    def new(self, kind: str, study: str, name: str) -> str:
        table = self.renames.get(kind, {})
        return table.get(f"{study}/{name}", table.get(name, name))

    def pair(self, kind: str, study: str, old: Any, new: Any) -> Iterator[tuple[str | None, str | None]]:
        """Names of A with the names of B that they have become; None where there is no partner."""
        there, taken = set(new), set()
        for name in old:
            renamed = self.new(kind, study, name)
            partner = renamed if renamed in there else name if name in there else None
            taken.add(partner)
            yield name, partner
        for name in sorted(there - taken):
            yield None, name


def compare(a: Path, b: Path, tolerance: float = 0.0, renames: Renames = RENAMES) -> list[Row]:
    """All rows of the comparison, study by study."""
    names, rows = Names(renames), []
    for old, new in names.pair("studies", "", studies(a), studies(b)):
        if old is None or new is None:
            rows.append(Row(old or new or "", "(study)", MISSING if new is None else ADDED))
            continue
        with opened(a / old) as before, opened(b / new) as after:
            rows += compare_study(old, before, after, tolerance, names)
    return rows + list(compare_files(a, b))


def studies(path: Path) -> list[str]:
    found = sorted(file.parent.name for file in path.glob("*/zarr.json") if not file.parent.name.startswith("."))
    if not found:
        raise SystemExit(f"There is no atlas at {path}: no folder in it holds a zarr.json.")
    return found


def opened(path: Path) -> xr.Dataset:
    return xr.open_zarr(path, consolidated=False, chunks=None, decode_times=False)


def compare_study(study: str, a: xr.Dataset, b: xr.Dataset, tolerance: float, names: Names) -> Iterator[Row]:
    """Variables and coordinates, then attributes."""
    for old, new in names.pair("variables", study, a.variables, b.variables):
        if old is None or new is None:
            partner = names.new("dims", study, old) if old else None
            if partner not in b.variables:
                if old or not _dimension_of_a(new, study, a, names):
                    yield Row(study, old or new or "", MISSING if new is None else ADDED)
                continue
            new = partner
        row = compare_variable(study, old, a.variables[old], b.variables[new], tolerance, names)
        yield row if new == old else row._replace(note=f"now {new}. {row.note}".strip())
        yield from compare_attributes(study, f"{old}.", a[old].attrs, b[new].attrs, names)
    yield from compare_attributes(study, "", a.attrs, b.attrs, names)


def _dimension_of_a(new: str | None, study: str, a: xr.Dataset, names: Names) -> bool:
    """Whether B's variable is a dimension's coordinate of A under its new name, which has a row already."""
    return any(names.new("dims", study, str(name)) == new for name in a.variables)


def compare_variable(study: str, name: str, a: xr.Variable, b: xr.Variable, tolerance: float, names: Names) -> Row:
    """Same dims and shape, then the values."""
    dims = tuple(names.new("dims", study, str(dim)) for dim in a.dims)
    if dims != b.dims and a.dims != b.dims:
        return Row(study, name, DIFFERENT, f"dims {a.dims} -> {b.dims}")
    if a.shape != b.shape:
        return Row(study, name, DIFFERENT, f"shape {a.shape} -> {b.shape}")
    before, after = a.values, b.values
    if before.dtype.kind in "biuf" and after.dtype.kind in "biuf":
        verdict, note = compare_numbers(before, after, tolerance)
        if before.dtype != after.dtype:
            verdict, note = (
                max(verdict, CLOSE, key=[SAME, CLOSE, DIFFERENT].index),
                f"{before.dtype} -> {after.dtype}. {note}",
            )
        return Row(study, name, verdict, note.strip())
    texts, now = ([str(text) for text in values.ravel()] for values in (before, after))
    moved = [i for i, text in enumerate(texts) if now[i] not in (text, names.new("values", study, str(text)))]
    if not moved:
        renamed = sum(text != new for text, new in zip(texts, now, strict=True))
        return Row(study, name, SAME, f"{renamed} values renamed" if renamed else "")
    first = f"{len(moved)} of {len(texts)} texts, first: {texts[moved[0]]!r} -> {now[moved[0]]!r}"
    return Row(study, name, WORDED if name in PROSE else DIFFERENT, first[:160])


def compare_numbers(a: np.ndarray, b: np.ndarray, tolerance: float) -> tuple[str, str]:
    """The verdict, and the largest absolute difference in words. NaN equals NaN."""
    if np.array_equal(a, b, equal_nan=a.dtype.kind == "f" and b.dtype.kind == "f"):
        return SAME, ""
    a, b = a.astype(np.float64), b.astype(np.float64)
    if (odd := int((np.isnan(a) != np.isnan(b)).sum())) > 0:
        return DIFFERENT, f"{odd} values are NaN in only one"
    with np.errstate(invalid="ignore"):
        difference = np.where(a == b, 0.0, np.abs(a - b))
    largest = float(np.nanmax(difference))
    scale = float(np.nanmax(np.abs(a[np.isfinite(a)]), initial=0.0))
    note = f"max abs difference {largest:.3g} ({int((difference > 0).sum())} of {a.size} values, largest {scale:.3g})"
    return CLOSE if largest <= tolerance * max(1.0, scale) else DIFFERENT, note


def compare_attributes(
    study: str, where: str, a: Mapping[Any, Any], b: Mapping[Any, Any], names: Names
) -> Iterator[Row]:
    """Attributes that are not equal. JSON in attributes is compared as data."""
    for old, new in names.pair("attributes", study, list(a), list(b)):
        key = str(old or new)
        if key in VOLATILE:
            continue
        prose = WORDED if key in PROSE else None
        if old is None or new is None:
            yield Row(study, f"{where}@{key}", prose or (MISSING if new is None else ADDED))
        elif (before := plain(a[old], study, names)) != (after := plain(b[new], None, names)):
            yield Row(study, f"{where}@{key}", prose or DIFFERENT, f"{before!r} -> {after!r}"[:160])


def plain(value: Any, study: str | None, names: Names) -> Any:
    """A comparable value: JSON read, volatile keys dropped, names of A renamed."""
    if isinstance(value, str) and value[:1] in "[{":
        try:
            value = json.loads(value)
        except json.JSONDecodeError:
            return value
    if isinstance(value, Mapping):
        return {key: plain(one, study, names) for key, one in value.items() if key not in VOLATILE}
    if isinstance(value, list | tuple | np.ndarray):
        return [plain(one, study, names) for one in value]
    if isinstance(value, str) and study is not None:
        return names.new("values", study, names.new("variables", study, value))
    return value.item() if isinstance(value, np.generic) else value


def compare_files(a: Path, b: Path) -> Iterator[Row]:
    """Other files at the top of the atlases (a fitted detector), byte by byte."""
    old, new = ({file.name: file for file in path.iterdir() if file.is_file()} for path in (a, b))
    for name in sorted((old.keys() | new.keys()) - {"zarr.json"}):
        if name not in old or name not in new:
            yield Row("(files)", name, MISSING if name in old else ADDED)
        else:
            same = digest(old[name]) == digest(new[name])
            yield Row("(files)", name, SAME if same else DIFFERENT, "" if same else "other bytes")


def digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def summary(rows: list[Row]) -> str:
    """Studies by verdicts, as Markdown."""
    verdicts = [SAME, CLOSE, WORDED, *WRONG]
    lines = [f"| study | {' | '.join(verdicts)} |", f"|---|{'--:|' * len(verdicts)}"]
    for study in dict.fromkeys(row.study for row in rows):
        counts = [sum(row.study == study and row.verdict == verdict for row in rows) for verdict in verdicts]
        lines.append(f"| {study} | {' | '.join(map(str, counts))} |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("a", type=Path, metavar="A", help="the atlas before")
    parser.add_argument("b", type=Path, metavar="B", help="the atlas after")
    parser.add_argument("--tolerance", type=float, default=0.0, help="0: the same bits (default)")
    parser.add_argument("--renames", type=Path, help="a JSON file of names that have changed")
    parser.add_argument("--prose", action="store_true", help="reworded texts count as differences")
    parser.add_argument("--all", action="store_true", help="also list what is the same")
    asked = parser.parse_args()
    given = json.loads(asked.renames.read_text(encoding="utf-8")) if asked.renames else {}
    renames = {kind: {**RENAMES.get(kind, {}), **given.get(kind, {})} for kind in {**RENAMES, **given}}
    rows = compare(asked.a, asked.b, asked.tolerance, renames)
    print(summary(rows))
    shown = [row for row in rows if asked.all or row.verdict not in (SAME, WORDED) or row.note.startswith("now ")]
    if shown:
        print("\n| study | name | verdict | |\n|---|---|---|---|")
        print("\n".join(f"| {row.study} | {row.name} | {row.verdict} | {row.note} |" for row in shown))
    wrong = sum(row.verdict in WRONG or (asked.prose and row.verdict == WORDED) for row in rows)
    print(f"\n{wrong} differences" if wrong else "\nThe same numbers.")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
