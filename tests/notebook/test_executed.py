"""A real notebook, run by a real kernel: results at the end of a cell show themselves, and the view is a widget."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

nbformat = pytest.importorskip("nbformat", reason="nbformat is not installed (pip install nbclient ipykernel)")
nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed (pip install nbclient ipykernel)")
pytest.importorskip("ipykernel", reason="ipykernel is not installed (pip install nbclient ipykernel)")

SOURCE = str(Path(__file__).parents[2] / "src")


@pytest.mark.filterwarnings("ignore")
def test_a_notebook_shows_its_results(atlas, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([SOURCE, os.environ.get("PYTHONPATH", "")]))
    cells = [
        f"from headwise.atlas import Atlas\natlas = Atlas.open({str(atlas.path)!r})\natlas",
        'atlas.figure("profile")',
        'atlas.describe("profile")',
        "from headwise.notebook import PatternView\nPatternView(atlas)",
        "PatternView(None)",
    ]
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    nbclient.NotebookClient(book, timeout=120, kernel_name="python3", allow_errors=True).execute()
    shown = [cell.outputs[-1] for cell in book.cells]
    assert "Atlas of" in shown[0].data["text/html"] and shown[0].data["text/plain"].startswith("Atlas ")
    assert shown[1].data["text/html"].startswith("<img ") and shown[1].data["text/plain"].startswith("<Figure ")
    assert "Key observations" in shown[2].data["text/html"]
    assert "application/vnd.jupyter.widget-view+json" in shown[3].data
    assert shown[4].ename == "DataError"
