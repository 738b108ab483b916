"""Which studies there are, which options each takes and what each is shown: read from their source, without running it.

Running it loads torch and transformers, which takes seconds, and a misspelt name is to be refused at once. Steps: parse
``studies/catalogue.py``; go through its table ``OPTIONS`` (study -> dataclass); follow the imports to where the name and the
dataclass are written down. What a study is shown is told by its line in the table ``STUDIES``: it reads ``sources.questions``,
``sources.passages`` and so on. Values are held against the types that stand there; what else they must be (a range, a
choice) the dataclass says when it is made.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from functools import cache, reduce
from operator import or_
from pathlib import Path
from typing import Any

from headwise.cli.settings import parts_of, value_of
from headwise.core.errors import StudyError, did_you_mean

__all__ = ["catalogue", "chosen", "refuse_unknown", "shown"]

STUDIES, TABLE, PREPARED, NEEDS, LATER = "headwise.studies.catalogue", "OPTIONS", "STUDIES", "NEEDS", "ON_REQUEST"
SOURCE = Path(__file__).parents[2]
TYPES: dict[str, Any] = {"int": int, "float": float, "bool": bool, "str": str, "tuple": tuple, "None": type(None)}


def catalogue() -> dict[str, dict[str, Any]]:
    """Study -> its options -> their types; None for a type that nobody can write on a command line."""
    table = _find(STUDIES, TABLE)
    assert isinstance(table, ast.Dict)
    found = {}
    for key, value in zip(table.keys, table.values, strict=True):
        options = _follow(value)
        assert isinstance(options, ast.ClassDef)
        fields = [node for node in options.body if isinstance(node, ast.AnnAssign)]
        found[_name(key)] = {one.target.id: _type(one.annotation) for one in fields if isinstance(one.target, ast.Name)}
    return found


def chosen(studies: Sequence[str] | None) -> list[str]:
    """The studies that a build makes: those named, each after those it is made from; None is all but the slow ones.

    >>> chosen(["spectral"])
    ['answers', 'spectral']
    """
    later, needs = _find(STUDIES, LATER), _find(STUDIES, NEEDS)
    assert isinstance(later, ast.Tuple) and isinstance(needs, ast.Dict)
    on_request = {_name(one) for one in later.elts}
    before = {
        _name(study): [_name(need) for need in needed.elts]
        for study, needed in zip(needs.keys, needs.values, strict=True)
        if isinstance(needed, ast.Tuple)
    }
    named = [study for study in catalogue() if study not in on_request] if studies is None else studies
    return list(dict.fromkeys(one for name in named for one in (*before.get(name, ()), name)))


def shown() -> dict[str, list[str]]:
    """What the model can be shown, as `studies.sources` calls it -> the studies that look at it.

    >>> shown()["steps"]
    ['functions', 'function_masking']
    """
    table = _find(STUDIES, PREPARED)
    assert isinstance(table, ast.Dict)
    found: dict[str, list[str]] = {}
    for study, prepare in zip(table.keys, table.values, strict=True):
        for node in ast.walk(prepare):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "sources":
                found.setdefault(node.attr, []).append(_name(study))
    return found


def refuse_unknown(studies: Sequence[str], settings: Sequence[str] = ()) -> None:
    """Refuse studies and options in ``STUDY.OPTION=VALUE`` that are not there, and values of another type."""
    known = catalogue()
    names = {study: list(options) for study, options in known.items()}
    for study in studies:
        if study not in known:
            raise StudyError(f"There is no study {study!r}. {did_you_mean(study, known)}")
    for setting in settings:
        study, option, text = parts_of(setting, names)
        if (kind := known[study][option]) is not None:
            value_of(f"The option {option} of the study {study}", text, kind)


def _type(written: ast.expr) -> Any:
    """The type that an annotation of plain types stands for; None where it is made of others."""
    if isinstance(written, ast.BinOp):
        both = [_type(side) for side in (written.left, written.right)]
        return None if None in both else reduce(or_, both)
    if isinstance(written, ast.Subscript) and isinstance(written.slice, ast.Tuple):
        each = _type(written.slice.elts[0])
        return None if each is None else tuple.__class_getitem__((each, ...))
    return TYPES.get(ast.unparse(written))


def _name(written: ast.expr | None) -> str:
    """The study that ``study.NAME`` in a table stands for."""
    name = _follow(written)
    assert isinstance(name, ast.Constant)
    return str(name.value)


def _follow(written: ast.expr | None) -> ast.AST | str:
    """What ``NAME`` or ``study.NAME`` in the table stands for."""
    if isinstance(written, ast.Attribute) and isinstance(written.value, ast.Name):
        module = _find(STUDIES, written.value.id)
        assert isinstance(module, str)
        return _find(module, written.attr)
    assert isinstance(written, ast.Name)
    return _find(STUDIES, written.id)


def _find(module: str, name: str) -> ast.AST | str:
    """What a name means in a module: the class, the value it is given, or another module (by its own name)."""
    for node in _body(module):
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                if name == (alias.asname or alias.name):
                    inner = f"{node.module}.{alias.name}"
                    return inner if _path(inner) is not None else _find(str(node.module), alias.name)
        if isinstance(node, ast.ClassDef) and node.name == name:
            return node
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if any(isinstance(one, ast.Name) and one.id == name for one in targets):
            return node.value  # type: ignore[attr-defined]
    raise LookupError(f"{module} has no {name}")


@cache
def _body(module: str) -> list[ast.stmt]:
    path = _path(module)
    return [] if path is None else ast.parse(path.read_text(encoding="utf-8")).body


def _path(module: str) -> Path | None:
    stem = SOURCE.joinpath(*module.split("."))
    return next((path for path in (stem.with_suffix(".py"), stem / "__init__.py") if path.exists()), None)
