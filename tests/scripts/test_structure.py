"""The counts of scripts/structure.py on a package whose structure is known."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "structure.py"
FILES = {
    "__init__.py": "",
    "core/__init__.py": "",
    "core/provenance.py": "class Job:\n    pass\n",
    "a.py": "from headwise.b import once, twice\n\nclass Job:\n    pass\n\nonce(), twice()\n",
    "b.py": "def once():\n    return 1\n\n\ndef twice():\n    return 2\n\n\ndef never():\n    return once.x\n",
    "c.py": "from headwise import b\nfrom headwise.d import __doc__\n\nb.twice()\n",
    "d.py": "TABLE = {'profile': 1, 'spectral': 2}\nOTHER = {'profile': 1, 'x': 2}\n",
    "studies/__init__.py": "",
    "studies/spectral/__init__.py": "LIST = ['profile', 'spectral']\n",
    "studies/spectral/measure.py": "import headwise.d\n",
}


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("structure", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["structure"] = module
    spec.loader.exec_module(module)
    return module


def test_the_counts(script: ModuleType, tmp_path: Path):
    for name, text in FILES.items():
        path = tmp_path / "src" / "headwise" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    package = script.Package(tmp_path)
    assert len(package.paths) == len(FILES)
    assert package.one_importer() == (0, 6)  # b by a and c, d by c and a measure; the others by nobody
    assert package.one_caller() == (0, 0, 3)  # once by a and b, twice by a and c, never by nobody
    assert package.duplicated_classes() == ["Job"]
    assert package.tables() == {"d.py": 1}
    rows = script.rows(package)
    assert rows["modules loaded by `…provenance`"] == "3 (headwise.core.provenance)"
    assert rows["modules loaded by a study's measure (the largest)"] == "5 (headwise.studies.spectral.measure)"


def test_a_folder_without_the_package_is_refused(script: ModuleType, tmp_path: Path):
    with pytest.raises(SystemExit, match="no src/headwise"):
        script.Package(tmp_path)
