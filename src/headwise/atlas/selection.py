"""Filters of the head table, such as ``profile.induction > 0.3 and layer < 10``.

The text is parsed with Python's ``ast`` and evaluated by walking the tree; nothing is executed. Allowed are column names (with
dots), ``name`` for the head's name, numbers, "text", ``< <= > >= == !=`` (also chained), ``"text" in column``, ``and or
not``, ``+ - * /`` and parentheses. Everything else (calls, indexing, attributes of anything but a column) is refused by name.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterable, Mapping
from functools import reduce
from typing import Any

import pandas as pd

from headwise.core.errors import DataError, did_you_mean

_MAX_LISTED = 16  # columns that a message lists
_MAX_LENGTH = 2000  # characters
_COMPARE: Mapping[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge,
    ast.Eq: operator.eq, ast.NotEq: operator.ne,
}  # fmt: skip
_ARITHMETIC: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
}  # fmt: skip


def select(
    frame: pd.DataFrame,
    where: str | None = None,
    *,
    sort: str | None = None,
    descending: bool = True,
    limit: int | None = None,
) -> pd.DataFrame:
    """The rows where the filter holds, sorted by a column.

    Args:
        frame: the head table, as `Atlas.heads` returns it.
        where: a filter, such as ``profile.induction > 0.3 and layer < 10``; None: all rows.
        sort: a column; NaN comes last, ties keep their order.
        descending: whether the largest comes first.
        limit: the maximal number of rows.

    Returns:
        The selected rows, all columns.

    Examples:
        >>> found = select(atlas.heads(), "profile.previous > 0.5 and layer > 1", sort="profile.previous")
        >>> list(found.index)
        ['L3H2']
    """
    if where is not None:
        frame = frame[_mask(frame, where)]
    if sort is not None:
        values = _column(frame, sort.strip())
        order = values.reset_index(drop=True).sort_values(ascending=not descending, kind="stable", na_position="last")
        frame = frame.iloc[order.index]
    return frame if limit is None else frame.head(max(limit, 0))


def _mask(frame: pd.DataFrame, where: str) -> pd.Series:
    if len(where) > _MAX_LENGTH:
        raise DataError(f"The filter has {len(where)} characters; at most {_MAX_LENGTH} are read.")
    try:
        found = _evaluate(ast.parse(where.strip(), mode="eval").body, frame)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as cause:
        raise DataError(
            f"The filter {where!r} cannot be read; write it like profile.induction > 0.3 and layer < 10 "
            "(== for equal, quotes around text)."
        ) from cause
    except (TypeError, ArithmeticError) as cause:
        raise DataError(f"The filter {where!r} cannot be computed: {cause}.") from cause
    if not isinstance(found, pd.Series) or found.dtype != bool:
        raise DataError(
            f'The filter {where!r} is not a comparison of a column; write it in quotes, like --where "layer < 10" (without '
            "quotes the shell takes < and > for files)."
        )
    return found


def _evaluate(node: ast.expr, frame: pd.DataFrame) -> Any:
    match node:
        case ast.BoolOp():
            parts = [_truth(_evaluate(value, frame), value) for value in node.values]
            return reduce(operator.and_ if isinstance(node.op, ast.And) else operator.or_, parts)
        case ast.UnaryOp(op=ast.Not()):
            return ~_truth(_evaluate(node.operand, frame), node.operand)
        case ast.UnaryOp(op=ast.USub()):
            return -_number(_evaluate(node.operand, frame), node.operand)
        case ast.BinOp() if type(node.op) in _ARITHMETIC:
            left, right = (_number(_evaluate(side, frame), side) for side in (node.left, node.right))
            return _ARITHMETIC[type(node.op)](left, right)
        case ast.Compare(left=ast.Constant(value=str(text)), ops=[ast.In() | ast.NotIn() as op], comparators=[column]):
            values = _evaluate(column, frame)
            if not isinstance(values, pd.Series) or values.dtype.kind != "O":
                raise DataError(f"{ast.unparse(column)!r} is not a column of text, so it cannot contain text.")
            found = values.fillna("").astype(str).str.contains(text, regex=False)
            return ~found if isinstance(op, ast.NotIn) else found
        case ast.Compare() if all(type(op) in _COMPARE for op in node.ops):
            return _chain(node, frame)
        case ast.Constant(value=bool() | int() | float() | str()):
            return node.value
        case ast.Name() | ast.Attribute():
            return _column(frame, _dotted(node))
        case _:
            raise DataError(
                f"The filter may not contain {ast.unparse(node)!r}; only column names, numbers, text, comparisons, "
                '"text" in a column, and, or, not, + - * / are read.'
            )


def _chain(node: ast.Compare, frame: pd.DataFrame) -> pd.Series:
    values = [_evaluate(side, frame) for side in (node.left, *node.comparators)]
    parts = []
    for op, left, right in zip(node.ops, values, values[1:], strict=False):
        if _is_text(left) != _is_text(right):
            raise DataError(
                f"The filter {ast.unparse(node)!r} cannot be computed: it compares text with a number; a column of text is "
                'compared with text in quotes, as in relations.best == "antonym".'
            )
        part = _COMPARE[type(op)](left, right)
        parts.append(part if isinstance(part, pd.Series) else pd.Series(bool(part), index=frame.index))
    return reduce(operator.and_, parts)


def _is_text(value: Any) -> bool:
    if isinstance(value, pd.Series):
        return value.dtype.kind not in "iufb" and bool(value.map(lambda one: isinstance(one, str)).any())
    return isinstance(value, str)


def _dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value)}.{node.attr}"
    if isinstance(node, ast.Name):
        return node.id
    raise DataError(f"The filter may not contain {ast.unparse(node)!r}; a dot belongs to the name of a column.")


def _column(frame: pd.DataFrame, name: str) -> pd.Series:
    if name in frame.columns:
        return frame[name]
    if name == frame.index.name:
        return frame.index.to_series()
    raise DataError(f"There is no column {name!r}. {nearest_columns(name, map(str, frame.columns))}")


def nearest_columns(name: str, columns: Iterable[str]) -> str:
    """The end of a message about an unknown column: the closest name, and the columns of its study.

    >>> nearest_columns("profile.inductoin", ["layer", "profile.induction", "profile.sink", "spectral.p"])
    "Did you mean 'profile.induction'? Of profile there are profile.induction, profile.sink."
    """
    known = list(columns)
    study = name.partition(".")[0]
    own = [column for column in known if column.startswith(f"{study}.")]
    if not own and len(known) <= _MAX_LISTED:
        return did_you_mean(name, known)
    guess = did_you_mean(name, known).partition("Known: ")[0]
    if own:
        more = f" and {len(own) - _MAX_LISTED} more" if len(own) > _MAX_LISTED else ""
        return f"{guess}Of {study} there are {', '.join(own[:_MAX_LISTED])}{more}."
    studies = dict.fromkeys(column.partition(".")[0] for column in known)
    return f"{guess}Columns begin with {', '.join(studies)}; headwise heads ATLAS --study NAME lists those of a study."


def _truth(value: Any, node: ast.expr) -> pd.Series:
    if isinstance(value, pd.Series) and value.dtype == bool:
        return value
    raise DataError(f"{ast.unparse(node)!r} is not true or false; compare it with something, as in layer < 10.")


def _number(value: Any, node: ast.expr) -> Any:
    if isinstance(value, int | float) or (isinstance(value, pd.Series) and value.dtype.kind in "iuf"):
        return value
    raise DataError(f"{ast.unparse(node)!r} is not a number, so nothing can be added to it or taken from it.")
