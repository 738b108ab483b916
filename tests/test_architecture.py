"""The import graph, written down: who may import whom. Data flows one way."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest
from synthetic.answers import answers_dataset
from synthetic.atlas import synthetic_atlas

SOURCE = Path(__file__).parents[1] / "src" / "headwise"

BELOW_ALL = {"__version__", "core", "stats"}  # every part may import these
MAY_IMPORT = {
    "core": set(),
    "stats": set(),
    # the measuring half
    "kernels": set(),
    "model": {"kernels"},
    "corpora": set(),
    "probes": set(),
    "scores": {"corpora"},
    "seam": {"kernels", "model"},
    "instruments": {"kernels", "seam"},
    "interventions": {"kernels", "seam"},
    "training": {"corpora", "model", "seam"},
    # what studies declare; the waist; how Datasets are shown
    "specs": {"corpora"},
    "figures": {"specs"},
    "describe": {"figures"},
    "study figures": {"figures", "specs"},
    "study heads": {"figures", "specs"},
    "study words": {"describe", "figures", "specs", "study figures", "study heads"},
    "present": {"describe", "figures", "specs"},
    "atlas": {"describe", "figures", "present", "specs"},
    "engines": {"atlas"},
    "studies": {
        "atlas",
        "corpora",
        "engines",
        "instruments",
        "interventions",
        "kernels",
        "model",
        "probes",
        "scores",
        "seam",
        "specs",
    },
    "analysis": {"atlas", "describe", "figures", "present", "specs", "study heads", "study words"},
    "web": {"atlas", "describe", "figures", "analysis", "present", "specs"},
    "bench": {"atlas", "analysis", "corpora", "engines", "model", "studies", "specs", "web"},
    "exports": {"atlas", "figures", "present", "study figures"},
    # answers, scored
    "watching": {"atlas", "corpora", "engines", "instruments", "model", "probes", "seam", "specs", "studies"},
    # a loaded model, served
    "live": {
        "atlas",
        "corpora",
        "figures",
        "instruments",
        "interventions",
        "kernels",
        "model",
        "seam",
        "specs",
        "studies",
        "watching",
    },
    "server": {"atlas", "figures", "analysis", "specs", "watching", "web"},
    "inspect_scorer": set(),  # loads `headwise.AnswerScorer` with the first answer
    "notebook": {"atlas", "figures", "instruments", "model", "seam", "study figures"},
    # the command line
    "cli": {
        "atlas",
        "bench",
        "corpora",
        "engines",
        "exports",
        "figures",
        "analysis",
        "live",
        "model",
        "present",
        "seam",
        "server",
    }
    | {"specs", "studies", "training", "watching", "web"},
    "__main__": {"cli"},
}
SPEC_MODULES = ("spec", "registry", "cost", "head_sets", "__init__")
READING_HALF = (
    "core",
    "figures",
    "describe",
    "atlas",
    "analysis",
    "web",
    "exports",
    "engines",
    "studies.registry",
    "studies.present",
)


def part_of(module: str) -> str:
    """The part of the graph that ``headwise.MODULE`` belongs to; a study's folder has modules of several parts."""
    names = module.split(".")
    if names[0] != "studies":
        return names[0]
    if len(names) == 1 or names[-1] in SPEC_MODULES or (len(names) == 2 and (SOURCE / "studies" / names[1]).is_dir()):
        return "specs"
    if names[1] == "present":
        return "present"
    if names[-1] == "heads":
        return "study heads"
    if any("figure" in name for name in names[2:]):
        return "study figures"
    if any(word in names[-1] for word in ("words", "findings", "accessor")):
        return "study words"
    return "studies"


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")


def imports(path: Path) -> set[str]:
    """The parts of headwise that a file imports."""
    found = set()
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for_types = [
        node for node in ast.walk(tree) if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    ]
    skipped = {id(inner) for node in for_types for inner in ast.walk(node)}
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.ImportFrom) and node.level == 0 and (node.module or "").split(".")[0] == "headwise":
            base = (node.module or "").removeprefix("headwise").removeprefix(".")
            for alias in node.names:
                inner = f"{base}.{alias.name}" if base else alias.name
                target = SOURCE.joinpath(*inner.split("."))
                is_module = target.with_suffix(".py").exists() or target.is_dir()
                found.add(part_of(inner if is_module or not base else base))
        elif isinstance(node, ast.Import):
            found |= {
                part_of(name.name.removeprefix("headwise.")) for name in node.names if name.name.startswith("headwise.")
            }
    return found


def test_every_part_imports_only_what_it_may():
    wrong = []
    for path in SOURCE.rglob("*.py"):
        part = part_of(module_of(path))
        if part == "__init__":
            continue
        allowed = MAY_IMPORT[part] | BELOW_ALL | {part}
        wrong += [f"{path.relative_to(SOURCE)} ({part}) imports {other}" for other in imports(path) - allowed]
    assert not wrong


def test_the_graph_has_no_cycle():
    done: set[str] = set()
    while len(done) < len(MAY_IMPORT):
        ready = {part for part, others in MAY_IMPORT.items() if others <= done} - done
        assert ready, f"a cycle among {set(MAY_IMPORT) - done}"
        done |= ready


def test_every_folder_is_in_the_graph():
    folders = {path.parent.name for path in SOURCE.glob("*/__init__.py")}
    assert folders <= {*MAY_IMPORT, "studies"}


def test_no_import_hides_in_a_function():
    """Except on the command line, where a verb loads what it needs, for matplotlib, which only drawing needs, and for a
    model card, which needs torch only to build a skeleton.
    """
    late = {"figures/__init__.py", "figures/figure.py", "model/card.py"}
    wrong = []
    for path in SOURCE.rglob("*.py"):
        if part_of(module_of(path)) == "cli" or str(path.relative_to(SOURCE)) in late:
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                for inner in ast.walk(node):
                    if isinstance(inner, ast.ImportFrom) and (inner.module or "").startswith("headwise"):
                        wrong.append(f"{path.relative_to(SOURCE)}:{inner.lineno}")
    assert not wrong


def loaded_after(code: str, folder: Path | None = None) -> set[str]:
    script = f"import sys\n{code}\nprint(' '.join(sys.modules))"
    environment = os.environ | {"PYTHONPATH": str(SOURCE.parent)}  # absolute: the process runs in another folder
    run = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=folder, env=environment
    )
    return set(run.stdout.split())


def test_importing_headwise_loads_nothing_heavy():
    assert not loaded_after("import headwise") & {"torch", "transformers", "xarray", "pandas", "matplotlib", "numpy"}


def test_the_atlas_loads_only_what_is_used():
    """The deprecated alias included, which warns."""
    code = "import warnings\nwarnings.simplefilter('ignore')\nimport headwise.atlas.provenance"
    assert len([name for name in loaded_after(code) if name.partition(".")[0] == "headwise"]) <= 10
    parts = {name.split(".")[1] for name in loaded_after("import headwise.atlas.atlas") if name.startswith("headwise.")}
    assert not parts & {"figures", "describe"}


def test_planning_loads_no_ray():
    assert not [name for name in loaded_after("import headwise.studies.planning") if "ray" in name.split(".")]
    assert not [name for name in loaded_after("import headwise.engines") if "ray" in name.split(".")]


def test_help_loads_nothing_heavy():
    code = "from headwise.cli.main import app\nimport typer.testing\ntyper.testing.CliRunner().invoke(app, ['--help'])"
    assert not loaded_after(code) & {"torch", "transformers", "xarray", "pandas", "matplotlib"}


def test_the_reading_half_needs_no_torch():
    code = "\n".join(f"import headwise.{part}" for part in READING_HALF)
    assert not loaded_after(code) & {"torch", "transformers"}


def test_statistics_need_numpy_scipy_and_xarray_alone():
    assert not loaded_after("import headwise.stats") & {"torch", "sklearn", "matplotlib", "zarr"}


NEVER_TO_READ = {
    "torch",
    "transformers",
    "sklearn",
    "matplotlib",
    "zarr",
    "scipy.stats",
    "scipy.optimize",
    "scipy.ndimage",
}
READING_COMMANDS = {
    "describe ATLAS profile": {*NEVER_TO_READ, "scipy.special", "headwise.analysis.comparison"},
    "heads ATLAS": {*NEVER_TO_READ, "scipy.special", "headwise.figures", "headwise.describe"},
    "head ATLAS L1H2": {*NEVER_TO_READ, "scipy.special", "headwise.analysis.comparison"},
    "answers ATLAS": {*NEVER_TO_READ, "scipy.special", "headwise.figures", "headwise.describe"},
    "describe ATLAS detection": NEVER_TO_READ,
    "describe ATLAS relations": NEVER_TO_READ,
    "describe ATLAS functions": NEVER_TO_READ,
    "show ATLAS profile -o profile.svg": NEVER_TO_READ - {"matplotlib"},
    "report ATLAS -o report.html": NEVER_TO_READ,
}


@pytest.fixture(scope="module")
def read_atlas(tmp_path_factory):
    path = tmp_path_factory.mktemp("read") / "atlas"
    atlas = synthetic_atlas(path)
    atlas.add("answers", answers_dataset(digest=atlas.provenance("profile").model["digest"]))
    return path


@pytest.mark.parametrize(("command", "unused"), READING_COMMANDS.items(), ids=READING_COMMANDS)
def test_a_reading_command_loads_only_what_it_uses(command, unused, read_atlas, tmp_path):
    code = f"""
import contextlib, io, sys
from headwise.cli.main import main
sys.argv = ["headwise", *{command.replace("ATLAS", str(read_atlas)).split()!r}]
with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
    try:
        main()
    except SystemExit as end:
        code = end.code
assert not code, code"""
    assert not loaded_after(code, tmp_path) & unused


def test_every_public_name_is_there():
    import headwise

    for name in headwise.__all__:
        assert getattr(headwise, name) is not None
    assert len(headwise.__all__) <= 34


def test_an_unknown_name_says_what_there_is():
    import headwise

    with pytest.raises(AttributeError, match="Spectrum"):
        headwise.Spectrometer  # noqa: B018
