"""A griffe extension: defaults that are named by a constant are shown as what they are.

    def differences(..., least: int = MIN_ANSWERS) ->   least: int = 20

A reader of the reference does not know the constant. Names are followed to where they are defined, through tuples; what is
not plain there (a call, a long text) keeps its name. `mkdocs.yml` names this file under the handler's `extensions`. It
imports nothing of Headwise, and stands before `field_comments.py`, which makes tables of these defaults.
"""

from __future__ import annotations

import ast
from typing import Any

import griffe

__all__ = ["PlainDefaults", "plain"]

LONGEST = 60  # characters of a default that is spelt out


class PlainDefaults(griffe.Extension):
    """Puts the value of a constant in the place of its name."""

    def on_package(self, *, pkg: griffe.Module, loader: griffe.GriffeLoader, **kwargs: Any) -> None:
        """All constants are there."""
        for one in _inside(pkg):
            if isinstance(one, griffe.Attribute):
                one.value = plain(one.value, pkg) or one.value
                continue
            for parameter in one.parameters:
                parameter.default = plain(parameter.default, pkg) or parameter.default


def plain(default: Any, pkg: griffe.Module) -> str | None:
    """The default spelt out; None where it is plain already, or cannot be."""
    if not isinstance(default, griffe.Expr):
        return None
    spelt = _spelt(default, pkg)
    return spelt if spelt != str(default) and _is_literal(spelt) and len(spelt) <= LONGEST else None


def _spelt(value: Any, pkg: griffe.Module) -> str:
    if isinstance(value, griffe.ExprName):
        constant = _constant(value, pkg)
        return str(value) if constant is None else _spelt(constant, pkg)
    if isinstance(value, griffe.ExprTuple | griffe.ExprList):
        parts = [_spelt(one, pkg) for one in value.elements]
        inside = ", ".join(parts) + ("," if isinstance(value, griffe.ExprTuple) and len(parts) == 1 else "")
        return f"[{inside}]" if isinstance(value, griffe.ExprList) else f"({inside})"
    return str(value)


def _constant(name: griffe.ExprName, pkg: griffe.Module) -> Any:
    """What a name stands for, where it is an attribute of a module here."""
    try:
        found = pkg[name.canonical_path.removeprefix(f"{pkg.path}.")]
        found = found.final_target if found.is_alias else found
    except (KeyError, ValueError, griffe.GriffeError):
        return None
    return found.value if isinstance(found, griffe.Attribute) else None


def _is_literal(text: str) -> bool:
    try:
        ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return False
    return True


def _inside(one: Any) -> list[griffe.Function | griffe.Attribute]:
    """All functions and methods, and the fields of classes."""
    found: list[griffe.Function | griffe.Attribute] = []
    for member in one.members.values():
        if member.is_alias:
            continue
        if isinstance(member, griffe.Function) or (isinstance(member, griffe.Attribute) and one.is_class):
            found.append(member)
        elif isinstance(member, griffe.Class | griffe.Module):
            found += _inside(member)
    return found
