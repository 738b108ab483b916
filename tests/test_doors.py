"""The doors: files for the user are written in one place, and JSON from outside is read in one place."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "headwise"

METHODS = {"write_text", "write_bytes", "savefig", "save_file", "save_pretrained", "tofile", "to_excel", "to_netcdf"}
TABLES = {"to_csv", "to_json", "to_parquet", "to_html"}  # without a path they return what they would write
FUNCTIONS = {
    ("np", "save"),
    ("np", "savez"),
    ("np", "savetxt"),
    ("torch", "save"),
    ("json", "dump"),
    ("pickle", "dump"),
}
RENAMES = {("os", "replace"), ("os", "rename"), ("shutil", "copy"), ("shutil", "copyfile"), ("shutil", "move")}
NAMES = {
    *METHODS,
    *TABLES,
    *(name for _, name in FUNCTIONS | RENAMES),
    "open(",
    "fdopen",
    "NamedTemporaryFile",
    "os.link",
}
OTHER_DOORS = {
    "core/files.py": "the door itself",
    "atlas/disk.py": "the atlas's files, whose commits are atomic by other means",
    "atlas/local_store.py": "the same",
    "core/cpu.py": "a note in the cache, renamed into place",
    "core/memory.py restart_peak": "no file: a switch of the kernel",
    "cli/main.py _logged": "the log of a bug, in the temporary folder",
    "model/sources.py": "a copy in the cache, which model/cache.py renames into place",
    "training/run.py write_model": "is given the folder of output_folder",
    "training/run.py _write_adapter": "is given the folder of output_folder",
}


def direct_writes(code: str) -> Iterator[tuple[str, str]]:
    """Function and call of everything that writes a file, unless into what the door gave or into memory."""
    if not any(name in code for name in NAMES):  # most files; parsing takes time
        return
    tree = ast.parse(code)
    parents = {child: parent for parent in ast.walk(tree) for child in ast.iter_child_nodes(parent)}
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        target = _written(call)
        if target is None:
            continue
        functions = [node for node in _above(call, parents) if isinstance(node, ast.FunctionDef)]
        given = {name for function in functions for name in _given_by_the_door(function)}
        if not any(isinstance(part, ast.Name) and part.id in given for part in ast.walk(target)):
            yield functions[-1].name if functions else "", ast.unparse(call)


def _written(call: ast.Call) -> ast.expr | None:
    """Where a call writes to; None for a call that writes no file."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    owner = call.func.value if isinstance(call.func, ast.Attribute) else None
    pair = (getattr(owner, "id", None), name)
    modes = [one.value for one in [*call.args, *(k.value for k in call.keywords)] if isinstance(one, ast.Constant)]
    if name in ("open", "fdopen", "NamedTemporaryFile"):
        if any(isinstance(mode, str) and set(mode) <= set("rwxab+t") and set(mode) & set("wxa+") for mode in modes):
            return call.args[0] if call.args and owner is None else owner or call
        return None
    if pair in RENAMES or pair == ("os", "link"):
        return call.args[1]
    if pair in FUNCTIONS:
        return call.args[0] if name.startswith("save") and pair[0] == "np" else call.args[1]
    if name in TABLES:
        paths = [*call.args, *(k.value for k in call.keywords if k.arg in ("path", "path_or_buf"))]
        return paths[0] if paths else None
    if name in METHODS:
        if name in ("write_text", "write_bytes"):
            return owner
        return call.args[1] if name == "save_file" and len(call.args) > 1 else (call.args[0] if call.args else call)
    return None


def _given_by_the_door(function: ast.FunctionDef) -> Iterator[str]:
    """Names for what ``with output_file(...)`` and ``output_folder`` give, and for bytes in memory."""
    for node in ast.walk(function):
        if isinstance(node, ast.withitem) and isinstance(node.optional_vars, ast.Name):
            if ast.unparse(node.context_expr).startswith(("output_file(", "output_folder(", "tempfile.NamedTemporary")):
                yield node.optional_vars.id
        elif isinstance(node, ast.Assign) and ast.unparse(node.value) == "io.BytesIO()":
            yield from (target.id for target in node.targets if isinstance(target, ast.Name))


def _above(node: ast.AST, parents: dict[ast.AST, ast.AST]) -> Iterator[ast.AST]:
    while node in parents:
        node = parents[node]
        yield node


def test_every_output_goes_through_the_door():
    found = {
        f"{file} {function}: {call}"
        for path in SOURCE.rglob("*.py")
        if (file := path.relative_to(SOURCE).as_posix()) not in OTHER_DOORS
        for function, call in direct_writes(path.read_text())
        if f"{file} {function}" not in OTHER_DOORS
    }
    assert found == set(), "write through headwise.core.files.output_file"


@pytest.mark.parametrize(
    "line",
    [
        "Path(path).write_text('x')", "open(path, 'w')", "path.open('wb')", "frame.to_csv(path)", "canvas.savefig(path)",
        "save_file({}, path)", "np.save(path, x)", "torch.save(x, path)", "json.dump(x, open(path, mode='a'))",
        "os.replace(temporary, path)", "frame.to_json(path_or_buf=path)", "model.save_pretrained(path)",
    ],
)  # fmt: skip
def test_a_direct_write_is_found(line):
    assert list(direct_writes(f"def f(path, temporary, x, model, frame):\n    {line}")), line


@pytest.mark.parametrize(
    "body",
    [
        "with output_file(path) as temporary:\n        temporary.write_bytes(b'')",
        "with output_folder(path) as folder:\n        save_file({}, folder / 'x')",
        "return frame.to_csv(index=False)",
        "file = io.BytesIO()\n    canvas.savefig(file, format='png')",
        "return open(path, 'rb').read()",
    ],
)
def test_writes_through_the_door_and_into_memory_are_not_found(body):
    assert not list(direct_writes(f"def f(path, frame, canvas):\n    {body}"))


JSON_DOORS = {
    "core/parsing.py": "the door itself",
    "core/provenance.py": "makes our own values plain",
    "model/digest.py": "of a tokenizer in memory",
    "cli/answers.py": "of a table in memory",
}


def test_json_from_outside_is_read_by_the_typed_parser():
    found = {
        path.relative_to(SOURCE).as_posix()
        for path in SOURCE.rglob("*.py")
        if "json.load" in path.read_text()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("json.loads", "json.load", "map")
        and "json.load" in ast.unparse(node)
    }  # fmt: skip
    assert found - JSON_DOORS.keys() == set(), "read with headwise.core.parsing.parse"
