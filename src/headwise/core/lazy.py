"""Lazy exports of a package (PEP 562): importing it loads none of its modules; a name loads its module on first use."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy_exports(
    package: str,
    homes: Mapping[str, str],
    *,
    deprecated: Mapping[str, str] | None = None,
    otherwise: Callable[[str], Any] | None = None,
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """``__getattr__`` and ``__dir__`` of a package.

    Args:
        package: its ``__name__``.
        homes: module -> its public names, separated by spaces; a leading dot makes it a module of the package. The names under
            "." are modules themselves.
        deprecated: old name -> new name; the old one warns.
        otherwise: looks up any other name; None: there is none.

    Examples:
        >>> get, names = lazy_exports("headwise.core", {".dims": "head_name parse_head"})
        >>> names(), get("head_name")(3, 7)
        (['head_name', 'parse_head'], 'L3H7')
        >>> get("heads")
        Traceback (most recent call last):
            ...
        AttributeError: headwise.core has no 'heads'; it has head_name, parse_head
    """
    home = {name: module for module, names in homes.items() for name in names.split()}
    renamed = deprecated or {}

    def __getattr__(name: str) -> Any:  # noqa: N807
        if name in renamed:
            text = f"{package}.{name} is now {package}.{renamed[name]}; use the new name"
            warnings.warn(text, DeprecationWarning, stacklevel=2)
            return __getattr__(renamed[name])
        if name not in home:
            if otherwise is not None and (found := otherwise(name)) is not None:
                return found
            raise AttributeError(f"{package} has no {name!r}; it has {', '.join(sorted(home))}")
        module = home[name]
        value = import_module(f".{name}", package) if module == "." else getattr(import_module(module, package), name)
        setattr(sys.modules[package], name, value)
        return value

    return __getattr__, lambda: sorted(home)
