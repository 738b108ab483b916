"""Run a notebook of docs/notebooks with small settings, in a folder of its own, and ask its kernel for values.

The cell tagged `parameters` is followed by one with the small settings; at the end a cell prints what was asked for, as
JSON. The notebooks themselves carry the outputs of a run with their full settings (scripts/run_notebooks.py).
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import nbclient
import nbformat

FOLDER = Path(__file__).parents[2] / "docs" / "notebooks"


def read(name: str) -> Any:
    """The notebook as it is kept."""
    return nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)


def parameters(book: Any) -> int:
    """The place of the cell that holds the settings."""
    (place,) = (at for at, cell in enumerate(book.cells) if "parameters" in cell.metadata.get("tags", []))
    return place


def run(name: str, folder: Path, small: str, **wanted: str) -> dict[str, Any]:
    """Execute a notebook with these settings; `wanted` are expressions whose values are given back."""
    book = read(name)
    book.cells.insert(parameters(book) + 1, nbformat.v4.new_code_cell(small))
    asked = ", ".join(f"{key!r}: ({expression})" for key, expression in wanted.items())
    book.cells.append(nbformat.v4.new_code_cell(f"import json\nprint(json.dumps({{{asked}}}, default=float))"))
    for data in FOLDER.glob("*.csv"):
        shutil.copy(data, folder)
    client = nbclient.NotebookClient(
        book, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(folder)}}
    )
    client.execute()
    return json.loads(book.cells[-1].outputs[-1]["text"])
