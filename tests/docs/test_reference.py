"""The reference is whole: every public name has a place on a page, an example that runs, its parameters and what it returns.

What stands on the pages is read by griffe, as the site reads it, with the site's own extension.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import re
import sys
from functools import cache
from pathlib import Path
from typing import Any

import griffe
import pytest

import headwise
from headwise.core.errors import HeadwiseError
from headwise.studies.registry import studies

ROOT = Path(__file__).parents[2]
EXTENSIONS = [str(ROOT / "scripts" / "site" / name) for name in ("plain_defaults.py", "field_comments.py")]
PAGES = sorted((ROOT / "docs" / "reference").glob("*.md"))
DIRECTIVE = re.compile(r"^::: (\S+)\n((?:    .*\n|\n(?=    ))*)", re.MULTILINE)
WHOLE = (  # all that these packages list is public
    "headwise",
    "headwise.instruments",
    "headwise.interventions",
    "headwise.atlas",
    "headwise.figures",
    "headwise.describe",
    "headwise.describe.maps",
    "headwise.analysis",
    "headwise.probes",
    "headwise.stats",
    "headwise.live",
    "headwise.exports",
    "headwise.notebook",
    "headwise.training",
)
INSIDE = {"headwise.atlas.packing.pack", "headwise.atlas.packing.unpack"}  # described in the docs of the store


@cache
def package() -> griffe.Module:
    """The sources, with the site's extension."""
    extensions = griffe.load_extensions(*EXTENSIONS)
    search = [str(ROOT / "src")]
    found = griffe.load("headwise", search_paths=search, extensions=extensions, docstring_parser="google")
    assert isinstance(found, griffe.Module)
    return found


@cache
def directives() -> dict[str, str]:
    """Path -> the options that stand under it."""
    return {path: options for page in PAGES for path, options in DIRECTIVE.findall(page.read_text(encoding="utf-8"))}


def found(path: str) -> Any:
    """What a page names, where it is defined."""
    one = package() if path == "headwise" else package()[path.removeprefix("headwise.")]
    return one.final_target if one.is_alias else one


def shown() -> list[Any]:
    """Functions and classes that pages name; of a module that is shown with its members, these."""
    objects = []
    for path, options in directives().items():
        one = found(path)
        if not one.is_module:
            objects.append(one)
        elif "members: false" not in options:
            public = {str(name) for name in one.exports or ()}
            objects += [member for name, member in one.members.items() if name in public and not member.is_alias]
    return [one for one in objects if one.is_function or one.is_class]


def sections(one: Any, kind: str) -> list[Any]:
    parsed = [] if one.docstring is None else one.docstring.parsed
    return [section for section in parsed if section.kind.value == kind]


def told(one: Any) -> set[str]:
    """The parameters and fields of which something is said."""
    rows = [row for kind in ("parameters", "attributes") for section in sections(one, kind) for row in section.value]
    return {row.name.lstrip("*") for row in rows if row.description.strip()}


def asked(one: Any) -> set[str]:
    """The parameters (or fields) that a caller may give."""
    if one.is_class:
        fields = fields_of(one)
        if fields:
            return {field.name for field in fields}
        one = one.members.get("__init__")
        if one is None:
            return set()
    return {parameter.name.lstrip("*") for parameter in one.parameters} - {"self", "cls"}


def fields_of(cls: Any) -> list[Any]:
    return extension().fields_of(cls)


@cache
def extension() -> Any:
    spec = importlib.util.spec_from_file_location("field_comments", ROOT / "scripts" / "site" / "field_comments.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["field_comments"] = module
    spec.loader.exec_module(module)
    return module


# ---- the pages ------------------------------------------------------------------------------------------------------


def test_every_name_on_a_page_is_there():
    missing = []
    for path in directives():
        try:
            found(path)
        except (KeyError, griffe.AliasResolutionError):
            missing.append(path)
    assert directives() and not missing


def public() -> set[str]:
    """Where the public functions and classes are defined."""
    names = set()
    for home in WHOLE:
        module = importlib.import_module(home)
        for name in module.__all__:
            one = getattr(module, name)
            if callable(one) and hasattr(one, "__qualname__"):
                names.add(f"{one.__module__}.{one.__qualname__}")
    return names - INSIDE


def test_every_public_name_has_a_place():
    places = {one.path for one in shown()}
    assert not sorted(public() - places)


def test_every_study_s_options_and_every_error_have_a_place():
    places = {one.path for one in shown()}
    wanted = {
        f"{options.__module__}.{options.__qualname__}" for options in [spec.options for spec in studies().values()]
    }
    wanted |= {
        f"headwise.core.errors.{error.__name__}"
        for error in HeadwiseError.__subclasses__()
        if error.__module__ == HeadwiseError.__module__
    }
    assert not sorted(wanted - places)


# ---- what is said ---------------------------------------------------------------------------------------------------


def test_every_name_has_an_example():
    without = [one.path for one in shown() if not sections(one, "examples") or ">>>" not in one.docstring.value]
    assert not sorted(without)


def test_examples_stand_where_they_are_drawn_as_code():
    """`>>>` in running text would be drawn as a quotation."""
    wrong = [one.path for one in shown() if any(">>>" in str(text.value) for text in sections(one, "text"))]
    assert not sorted(wrong)


def test_every_parameter_and_field_is_told():
    missing = {one.path: sorted(asked(one) - told(one)) for one in shown()}
    assert not {path: names for path, names in missing.items() if names}


def test_every_function_says_what_it_returns():
    silent = [
        one.path
        for one in shown()
        if one.is_function and str(one.returns) not in ("None", "") and not sections(one, "returns")
    ]
    assert not sorted(silent)


def test_every_method_that_is_shown_says_what_it_does():
    silent = []
    for path, options in directives().items():
        one = found(path)
        if not one.is_class or "members: false" in options:
            continue
        only = re.search(r"members: \[(.*)\]", options)
        names = re.findall(r"\w+", only[1]) if only else [name for name in one.members if not name.startswith("_")]
        methods = [one.members[name] for name in names if name in one.members and one.members[name].is_function]
        silent += [method.path for method in methods if method.docstring is None]
    assert not sorted(silent)


# ---- the list of public names ---------------------------------------------------------------------------------------


def test_type_checkers_see_the_public_names():
    """`headwise/__init__.py` loads names late; what it tells type checkers, what it loads and its list are one."""
    tree = ast.parse((ROOT / "src" / "headwise" / "__init__.py").read_text(encoding="utf-8"))
    block = next(node for node in tree.body if isinstance(node, ast.If))
    typed = {
        alias.name: str(node.module) for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    assert sorted(typed) == sorted(headwise.__all__) == dir(headwise)
    for name, module in typed.items():
        home = importlib.import_module(module)
        found = getattr(home, name) if hasattr(home, name) else importlib.import_module(f"{module}.{name}")
        assert getattr(headwise, name) is found


# ---- the extension --------------------------------------------------------------------------------------------------

SOURCE = '''
from dataclasses import dataclass, field
from typing import NamedTuple

HEAD = "head"
SIZE = 3

@dataclass
class Options:
    """What can be chosen."""

    size: int = SIZE  # of a batch
    names: list[str] = field(default_factory=list)  # of heads
    hidden: int | None = field(default=None, repr=False)
    """told below"""
    bare: bool = False
    _own: int = 0  # nobody's business

    @property
    def double(self) -> int:
        return 2 * self.size

class Pair(NamedTuple):
    first: int  # the one
    second: int = 0  # the other

@dataclass
class Told:
    """Told.

    Args:
        size: by its docstring.
    """

    size: int = 0  # not by this

class Plain:
    size: int = 3  # not a field

DIMS = ("layer", HEAD)

def call(size: int = SIZE, dims: tuple = DIMS, other: object = OTHER(), number: int = 2 << 3, unknown: int = elsewhere):
    """Call."""
'''


@pytest.fixture
def made(tmp_path: Path) -> griffe.Module:
    (tmp_path / "made.py").write_text(SOURCE)
    extensions = griffe.load_extensions(*EXTENSIONS)
    loaded = griffe.load("made", search_paths=[str(tmp_path)], extensions=extensions, docstring_parser="google")
    assert isinstance(loaded, griffe.Module)
    return loaded


def rows(one: Any) -> list[tuple[str, str, str | None]]:
    return [(row.name, row.description, row.value) for section in sections(one, "parameters") for row in section.value]


def test_fields_are_told_by_their_comments(made: griffe.Module):
    assert rows(made["Options"]) == [
        ("size", "of a batch", "3"),
        ("names", "of heads", "list()"),
        ("hidden", "told below", "None"),
        ("bare", "", "False"),
    ]


def test_named_tuples_have_fields_and_plain_classes_none(made: griffe.Module):
    assert rows(made["Pair"]) == [("first", "the one", None), ("second", "the other", "0")]
    assert made["Plain"].docstring is None


def test_a_docstring_that_tells_its_fields_is_left_alone(made: griffe.Module):
    assert [(name, said) for name, said, _ in rows(made["Told"])] == [("size", "by its docstring.")]


def test_defaults_are_spelt_out(made: griffe.Module):
    found = {one.name: str(one.default) for one in made["call"].parameters}
    assert found == {
        "size": "3",
        "dims": "('layer', 'head')",
        "other": "OTHER()",
        "number": "2 << 3",
        "unknown": "elsewhere",
    }
