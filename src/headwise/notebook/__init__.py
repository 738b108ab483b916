"""Widgets for a notebook, offline in Jupyter, VS Code and Colab. Needs the extra: ``pip install "headwise[notebook]"``.

    from headwise.notebook import PatternView, look

    PatternView(atlas)                                    # the maps that an atlas keeps
    look(model, "The cat sat on the mat.")                # a text of your own, now
    PatternView(seen["patterns"], model.tokens(text))     # what a Patterns instrument has read

Names are loaded when first used: an atlas is looked at without torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from headwise.core.errors import HeadwiseError

__all__ = ["PatternView", "look"]

_HOMES = {"PatternView": "headwise.notebook.pattern_view", "look": "headwise.notebook.text_view"}


class MissingExtraError(HeadwiseError, ImportError):
    """A package of the extra is not installed (docs/errors/extras.md)."""


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"headwise.notebook has no {name!r}; it has {', '.join(__all__)}")
    try:
        import_module("anywidget")
    except ImportError as error:
        raise MissingExtraError(
            'The pattern view needs the package anywidget: pip install "headwise[notebook]".'
        ) from error
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
