"""The AUROC table of docs/studies/spectral.md: one row per detector, one column per atlas.

    python scripts/auroc_table.py packaged=demo/atlas TriviaQA=atlases/triviaqa ...

An atlas is a folder, or a JSON file with the Dataset `detection` as `Dataset.to_dict()` writes it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import xarray as xr

from headwise.atlas import Atlas


def detection(path: str) -> xr.Dataset:
    """The table of detectors of one atlas."""
    if Path(path).is_dir():
        return Atlas.open(path)["detection"]
    return xr.Dataset.from_dict(json.loads(Path(path).read_text(encoding="utf-8")))


def cell(table: xr.Dataset, name: str) -> str:
    """AUROC and its interval; the best of a column is set in bold."""
    if name not in table["detector"].values:
        return "-"
    row = table.sel(detector=name)
    text = f"{float(row['auroc']):.3f}"
    if name == str(table["detector"].values[int(table["auroc"].values.argmax())]):
        text = f"**{text}**"
    return f"{text} ({float(row['auroc_low']):.2f}-{float(row['auroc_high']):.2f})"


def main() -> None:
    """Print the table in Markdown."""
    tables = {name: detection(path) for name, path in (argument.split("=", 1) for argument in sys.argv[1:])}
    counts = {name: json.loads(table.attrs.get("counts", "{}")) for name, table in tables.items()}
    rows = list(dict.fromkeys(str(name) for table in tables.values() for name in table["detector"].values))
    print("| | " + " | ".join(tables) + " |\n|---" * 1 + "|---" * len(tables) + "|")
    print("| wrong / correct / refused | " + " | ".join(_counts(counts[name]) for name in tables) + " |")
    for row in rows:
        print(f"| {row} | " + " | ".join(cell(table, row) for table in tables.values()) + " |")


def _counts(counts: dict[str, int]) -> str:
    return " / ".join(str(counts.get(label, 0)) for label in ("wrong", "correct", "refused"))


if __name__ == "__main__":
    main()
