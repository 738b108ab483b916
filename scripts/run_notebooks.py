"""Run the notebooks of docs/notebooks with their full settings, and keep what they show in the files.

    python scripts/run_notebooks.py [NAME ...]        # such as first-look; without a name all five

Each runs in a kernel and a folder of its own, so that atlases have short, relative names and no path of this machine is
kept. Of the file only cells, outputs and the language stay: no times, no versions of the front end. A notebook that
fails is not written.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

import nbclient
import nbformat

FOLDER = Path(__file__).parents[1] / "docs" / "notebooks"
KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}


def execute(path: Path) -> None:
    """Run one notebook and write it back."""
    book = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        for data in FOLDER.glob("*.csv"):
            shutil.copy(data, folder)
        where = {"metadata": {"path": folder}}
        nbclient.NotebookClient(
            book, timeout=3600, kernel_name="python3", resources=where, record_timing=False
        ).execute()
    for cell in book.cells:
        if cell.cell_type == "code":
            cell.outputs = [output for output in cell.outputs if not shows_progress(output)]
    book.metadata = {"kernelspec": KERNEL, "language_info": {"name": "python"}}
    nbformat.write(book, path)


def shows_progress(output: nbformat.NotebookNode) -> bool:
    """Whether an output is a progress bar: a widget, which no file keeps, or what is left when it ends."""
    data = output.get("data", {})
    return "application/vnd.jupyter.widget-view+json" in data or (bool(data) and not data.get("text/plain"))


def main() -> None:
    """All notebooks, or those named."""
    names = sys.argv[1:] or sorted(path.stem for path in FOLDER.glob("*.ipynb"))
    for name in names:
        print(name, flush=True)
        execute(FOLDER / f"{name}.ipynb")


if __name__ == "__main__":
    main()
