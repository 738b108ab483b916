"""Values nobody expects, and small changes of what is expected: of a JSON tree, and of bytes."""

from __future__ import annotations

import copy
import json
import math
from random import Random
from typing import Any

__all__ = ["change_bytes", "change_tree", "dumps", "odd_number", "odd_text", "odd_value", "odd_word"]

TEXTS = (
    "", " ", "a", "L0H0", "profile", "value", "layer", "nan", "-1", "0", "1e999", "null", "../../etc/passwd", "/", "~", ".",
    "..", "\0", "\x1b[2J\x1b]0;owned\x07", "\x9b31m", '=HYPERLINK("http://x")', "</script><img src=x onerror=alert(1)>",
    "\u202e", "é" * 200, "a" * 5000, "漢字", "\ud800", "{", "[red]x[/red]", "[/]", "%s%n", "${HOME}", "a\nb", "\r\n",
    "\u2028", "'", '"', "9" * 5000, "-", "--", "=", ",", ";", "a,b,,", "true", "2026-01-01T00:00:00", "L999H999", "L-1H0",
    "L٣H١", "\ufeffa", "a\tb",
)  # fmt: skip
NUMBERS: tuple[int | float, ...] = (
    0, -1, 1, 2, 3, 7, 100, 10**6, 2**31, 2**53 + 1, 2**63, 2**64, -(2**63), 10**30, 0.5, -0.0, 1.5, 1e-320, 1e308, math.nan,
    math.inf, -math.inf,
)  # fmt: skip


def odd_text(dice: Random) -> str:
    """A text that is seldom meant."""
    text = dice.choice(TEXTS)
    return text + dice.choice(TEXTS) if dice.random() < 0.1 else text


def odd_word(dice: Random) -> str:
    """A text that an operating system hands to a program: no NUL."""
    return odd_text(dice).replace("\0", "\\0")


def odd_number(dice: Random) -> int | float:
    """A number at some limit."""
    return dice.choice(NUMBERS)


def odd_value(dice: Random, depth: int = 2) -> Any:
    """Any JSON value."""
    kind = dice.randrange(10 if depth else 7)
    if kind < 3:
        return odd_text(dice)
    if kind < 5:
        return odd_number(dice)
    if kind < 7:
        return dice.choice((None, True, False, [], {}))
    if kind == 7:
        return [odd_value(dice, depth - 1) for _ in range(dice.randrange(4))]
    if kind == 8:
        return {odd_text(dice): odd_value(dice, depth - 1) for _ in range(dice.randrange(4))}
    return _nested(dice.choice((20, 100, 200)))


def _nested(levels: int) -> Any:
    deep: Any = 1
    for _ in range(levels):
        deep = [deep]
    return deep


def change_tree(dice: Random, tree: Any, changes: int | None = None) -> tuple[Any, str]:
    """A copy of a JSON tree with a few changes, and what they were."""
    tree, said = copy.deepcopy(tree), []
    for _ in range(changes or dice.choice((1, 1, 1, 2, 3))):
        places = _places(tree)
        if not places:
            return odd_value(dice), "replaced all"
        where, key, path = dice.choice(places)
        said.append(_change(dice, where, key, path, places))
    return tree, "; ".join(said)


def _places(tree: Any, path: str = "$") -> list[tuple[Any, Any, str]]:
    """(container, key, path) of every node below the root."""
    found: list[tuple[Any, Any, str]] = []
    pairs = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, value in pairs:
        found.append((tree, key, f"{path}.{str(key)[:40]}"))
        if len(found) < 400:
            found += _places(value, f"{path}.{str(key)[:40]}")
    return found


def _change(dice: Random, where: Any, key: Any, path: str, places: list[tuple[Any, Any, str]]) -> str:
    value, way = where[key], dice.randrange(8)
    if way == 0:
        del where[key]
        return f"{path} deleted"
    if way == 1 and isinstance(where, dict):
        where[odd_text(dice)] = where.pop(key)
        return f"{path} renamed"
    if way == 2:
        new: Any = dice.choice(([value], {"a": value}, str(value)[:9999], [value, value], [odd_number(dice)] * 3000))
    elif way == 3:
        other, name, _ = dice.choice(places)
        new = copy.deepcopy(other[name]) if name in _keys(other) else None
    elif way == 4 and isinstance(value, int | float) and not isinstance(value, bool):
        new = dice.choice((-value, value + 1, value - 1, float(value), value * 1000, not value))
    elif way == 5 and isinstance(where, dict):
        where[odd_text(dice)] = odd_value(dice)
        return f"something added beside {path}"
    else:
        new = odd_value(dice)
    where[key] = new
    return f"{path} = {_shown(new)}"


def _keys(container: Any) -> Any:
    return container.keys() if isinstance(container, dict) else range(len(container))


def _shown(value: Any) -> str:
    try:
        return repr(value)[:60]
    except (RecursionError, ValueError):  # numbers of many digits have no text
        return "(long)"


def change_bytes(dice: Random, content: bytes) -> tuple[bytes, str]:
    """Bytes with one change, and what it was."""
    place = dice.randrange(len(content) + 1)
    length = min(dice.choice((1, 2, 8, 64, 1000)), len(content) - place)
    part = content[place : place + length]
    noise = bytes(dice.randrange(256) for _ in range(max(length, 1)))
    changed = {
        "cut at": content[:place],
        "bytes lost at": content[:place] + content[place + length :],
        "bytes doubled at": content[:place] + part + part + content[place + length :],
        "bit flipped at": content[:place] + bytes([part[0] ^ 1 << dice.randrange(8)]) + content[place + 1 :]
        if part
        else b"",
        "noise at": content[:place] + noise + content[place + length :],
        "zeros at": content[:place] + bytes(length) + content[place + length :],
        "something added after": content + dice.choice((b"\0", b"}", b"\n{}", noise)),
        "emptied": b"",
        "marked with a BOM": b"\xef\xbb\xbf" + content,
        "as UTF-16": content.decode("latin-1").encode("utf-16"),
        "replaced by depth": b"[" * 99_999,
        "replaced by digits": b"9" * 6000,
    }
    way = dice.choice(list(changed))
    return changed[way], f"{way} {place}" if way.endswith("at") else way


def dumps(tree: Any) -> bytes:
    """The tree as JSON; half a surrogate pair is escaped, as Python does it."""
    try:
        return json.dumps(tree).encode()
    except RecursionError:
        return b"[" * 5000
