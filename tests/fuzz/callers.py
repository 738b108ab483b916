"""Grammars of what people type and browsers ask: command lines, settings, conditions, requests."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import cache
from pathlib import Path
from random import Random
from typing import Any
from unittest import mock

import typer

from fuzz.files import refused_or_answered
from fuzz.harness import Act, Outcome, call, command
from fuzz.odd import change_bytes, change_tree, dumps, odd_number, odd_text, odd_word
from fuzz.scene import Scene
from headwise.cli.main import app
from headwise.studies.registry import studies

__all__ = ["CALLERS"]

Draw = Callable[[Random, Scene, Path], Act]
NOWHERE = ("./nowhere", "nobody/nothing", "./nowhere.gguf", "a b", "x" * 300)
GOOD: dict[str, tuple[str, ...]] = {
    "study": ("profile", "detection", "relations", "answers", "spectral", "nope"),
    "head": ("L0H0", "L2H1", "L9H9"),
    "output": ("out.csv", "out.json", "out.md", "out.txt", "out.png", "out.svg", "out.html", "out", "no/such/a.csv", "/"),
    "limit": ("1", "5", "0"), "top": ("1", "3"), "seed": ("0", "7"), "columns": ("all", "profile.sink", "profile.*"),
    "sort": ("profile.sink", "layer"), "where": ("profile.sink > 0.1", "layer == 0 and head < 2"),
    "label": ("wrong", "correct"), "to": ("headvis", "./copy", "hub:me/x"), "ask": ("where was the river ?",),
    "answer": ("old",), "port": ("0",),
    "host": ("127.0.0.1", "0.0.0.0", "::1"), "dtype": ("float32", "float64", "bfloat16", "auto"), "device": ("cpu", "cuda:9"),
    "studies": ("profile", "profile,spectral"), "redo": ("profile",), "settings": ("profile.period=4", "spectral.k=5"),
    "engine": ("local",), "rank": ("1", "-1"), "rate": ("0.1", "nan"), "memory": ("cpu=1GiB", "0=1"), "device_map": ("auto",),
}  # fmt: skip
COSTLY = {"show": 0.3, "report": 0.2, "check": 0.3, "compare": 0.5, "plan": 0.5}
MEASURING = ("build", "sparsify", "plan", "check")


@cache
def _verbs() -> dict[str, Any]:
    return dict(typer.main.get_command(app).commands)  # type: ignore[attr-defined]


def command_lines(dice: Random, scene: Scene, folder: Path) -> Act:
    """A verb with some of its arguments and options, their values good or odd; unknown ones; no verb at all."""
    verbs = _verbs()
    verb = dice.choices(list(verbs), [COSTLY.get(name, 1.0) for name in verbs])[0]
    words: list[str] = [] if dice.random() < 0.03 else [verb if dice.random() < 0.97 else odd_word(dice)]
    params = list(verbs[verb].params)
    for param in [one for one in params if one.param_type_name == "argument"]:
        model = param.name == "model"
        if model or param.required or dice.random() < 0.5:
            words += [
                _argument(dice, scene, verb, param.name)
                for _ in range(2 if param.nargs != 1 and dice.random() < 0.3 else 1)
            ]
    options = [one for one in params if one.param_type_name == "option"]
    for param in dice.sample(options, min(len(options), dice.choice((0, 1, 1, 2, 3, 5)))):
        name = dice.choice(param.opts)
        if param.is_flag:
            words.append(name)
        else:
            value = _value(dice, scene, param.name)
            words += [f"{name}={value}"] if name.startswith("--") and dice.random() < 0.3 else [name, value]
    if dice.random() < 0.08:
        words.insert(
            dice.randrange(1, len(words) + 1) if words else 0, dice.choice((odd_word(dice), "--nope", "-x", "--", "-h"))
        )
    if verb in MEASURING and not any(word in words for word in (*NOWHERE, str(scene.model_folder))):
        words.append("./nowhere")  # never the default model, which takes long

    def do() -> Outcome:
        serving = [mock.patch(name) for name in ("headwise.server.run", "headwise.server.serving.run")]  # for ever
        with serving[0], serving[1], mock.patch("headwise.cli.serve._session"):  # it would load in the background
            return command(*words, stdin=dice.choice(("", "{}\n", odd_text(dice))))

    return Act(f"headwise {words!r}", do, codes=(0, 1, 2) if verb in ("check", "plan") else (0, 2), speech=False)


def _argument(dice: Random, scene: Scene, verb: str, name: str) -> str:
    if name == "model":
        fits = verb in ("plan", "check") and dice.random() < 0.3
        return str(scene.model_folder) if fits else dice.choice(NOWHERE)
    if name in GOOD and dice.random() < 0.8:
        return dice.choice(GOOD[name])
    if name in ("atlas", "atlases", "a", "b") and dice.random() < 0.85:
        return str(scene.atlas)
    return odd_word(dice)


def _value(dice: Random, scene: Scene, name: str) -> str:
    way = dice.random()
    if way < 0.45 and name in GOOD:
        return dice.choice(GOOD[name])
    if name == "where" and way < 0.9:
        return _condition(dice)
    if way < 0.6:
        return str(odd_number(dice))
    return str(scene.atlas) if way < 0.65 and name not in ("output", "to") else odd_word(dice)


def _condition(dice: Random, depth: int = 3) -> str:
    """A condition on heads, well formed or nearly."""
    if depth and dice.random() < 0.4:
        inner = _condition(dice, depth - 1), _condition(dice, depth - 1)
        return dice.choice(
            ("{} and {}", "{} or {}", "({}) and not ({})", "not {}", "{} {}", "(({}", "{} if {}")
        ).format(*inner)
    column = dice.choice(
        ("profile.sink", "layer", "head", "relations.best", "profile.nope", "__class__", "x()", odd_word(dice))
    )
    value = dice.choice(
        (
            "0.1",
            "'a'",
            "1e999",
            "[1]",
            "-1",
            "10**9**9",
            "lambda: 1",
            "open('x')",
            str(odd_number(dice)),
            odd_word(dice),
        )
    )
    return f"{column} {dice.choice(('>', '<', '==', '!=', '>=', 'in', 'is', '=', '~', '&'))} {value}"


def conditions(dice: Random, scene: Scene, folder: Path) -> Act:
    """``headwise heads --where``: a small language of its own."""
    from headwise.atlas.selection import select

    text, table = _condition(dice, 6), scene.head_table
    return Act(f"--where {text!r}", lambda: call(lambda: len(select(table, text))))


def settings(dice: Random, scene: Scene, folder: Path) -> Act:
    """``--set STUDY.OPTION=VALUE`` for every option that a study has."""
    words: list[str] = []
    for _ in range(dice.choice((1, 1, 2))):
        study = dice.choice(list(studies()))
        names = [one.name for one in dataclasses.fields(studies()[study].options)]
        option = dice.choice(names) if dice.random() < 0.9 else odd_word(dice)
        value = dice.choice((str(odd_number(dice)), odd_word(dice), "yes", "none", "1,2", "1,x", "all", "0.1", "5"))
        form = dice.choice(("{}.{}={}",) * 8 + ("{}.{}", "{}={}{}", " {} . {} = {}", "{1}={2}"))
        words += ["--set", form.format(study if dice.random() < 0.95 else odd_word(dice), option, value)]
    return Act(f"headwise build {words!r}", lambda: command("build", "./nowhere", *words))


# ---- requests --------------------------------------------------------------------------------------------------------

ROUTES = (
    "/", "/good", "/good/", "/good/heads", "/good/head/{head}", "/good/study/{study}", "/good/compare/{name}", "/atlas/live",
    "/assets/{file}", "/api/{name}/atlas", "/api/good/findings", "/api/good/study/{study}", "/api/good/figure/{study}/{word}",
    "/api/good/heads", "/api/good/head/{head}", "/api/good/agreement", "/api/good/download/{file}", "/api/good/compare/{name}",
    "/api/good/live", "/api/good/live/run/{word}/head/{head}", "/{word}", "/{word}/{word}", "/api/{word}/{word}",
)  # fmt: skip
HOLES: dict[str, tuple[str, ...]] = {
    "head": ("L0H0", "L2H1", "L9H9", "L" + "9" * 5000 + "H0", "L1H1/", "l0h0", "L٣H١"),
    "study": ("profile", "detection", "answers", "spectral"), "name": ("good", "atlas", "other"),
    "file": ("app.js", "style.css", "heads.csv", "heads.json", "../app.js", "app.py"), "word": ("x", "value", "1"),
}  # fmt: skip
POSTS: dict[str, dict[str, Any]] = {
    "/api/good/live/run": {"text": "the old river", "mode": "text", "answer": True, "max_new_tokens": 2,
                           "changes": {"L0H0": 0.0}},
    "/api/good/live/what_if": {"run": "1", "changes": {"L0H0": 0.5}, "draws": 1},
    "/api/good/live/score": {"question": "where was the river ?", "answer": "old"},
}  # fmt: skip
HEADERS = (
    (b"host", b"evil.example"), (b"host", b""), (b"host", b"127.0.0.1"), (b"origin", b"http://["), (b"origin", b"null"),
    (b"origin", b"http://127.0.0.1:8000"), (b"content-length", b"-1"), (b"content-length", b"\xb2"),
    (b"content-length", b"9" * 400),
    (b"accept", b"text/html"), (b"if-none-match", b'"x", W/"y"'), (b"content-type", b"text/plain"), (b"x", b"\xff\x00\n"),
    (b"accept-encoding", b"gzip"), (b"transfer-encoding", b"chunked"), (b"range", b"bytes=0-"), (b"cookie", b"a" * 9000),
    (b"x-forwarded-host", b"evil.example"), (b"content-type", b"application/json; charset=utf-16"),
)  # fmt: skip


def requests(dice: Random, scene: Scene, folder: Path) -> Act:
    """Any method, path, query, headers and body, as a socket could bring them."""
    if dice.random() < 0.45:
        path = dice.choice(list(POSTS))
        tree: Any = POSTS[path]
        if dice.random() < 0.85:
            tree, _ = change_tree(dice, tree)
        content = dumps(tree)
        if dice.random() < 0.2:
            content, _ = change_bytes(dice, content)
        method, kind = dice.choice(("POST", "POST", "POST", "PUT")), (b"content-type", b"application/json")
    else:
        path = dice.choice(ROUTES)
        path = path.format(
            **{name: dice.choice(some) if dice.random() < 0.7 else odd_text(dice) for name, some in HOLES.items()}
        )
        method, content, kind = (
            dice.choice(("GET", "GET", "GET", "HEAD", "POST", "OPTIONS", "DELETE", "get", "X")),
            b"",
            (b"accept", b"*/*"),
        )
    target = _quoted(dice, path)
    if dice.random() < 0.3:
        target += b"?" + b"&".join(
            dice.choice((b"rows", b"columns", b"size", b"x", b"%ff"))
            + b"="
            + _quoted(dice, dice.choice(("1:2", "0:99", str(odd_number(dice)), odd_text(dice))))
            for _ in range(dice.choice((1, 2)))
        )
    headers = [(b"host", b"127.0.0.1:8000"), kind, *dice.sample(HEADERS, dice.choice((0, 0, 0, 1, 2)))]
    if dice.random() < 0.1:
        headers = headers[1:]
    cut = dice.randrange(len(content) + 1)
    body = (content[:cut], content[cut:]) if dice.random() < 0.2 else (content,)
    served = scene.served

    def ask() -> Outcome:
        try:
            answer = served.ask(method, target, tuple(headers), body)
        except UnicodeDecodeError as error:  # of the client that stands for uvicorn
            raise AssertionError from error
        lines = answer.body.decode("utf-8", "replace").strip().splitlines()
        broken = any('"event": "failed"' in line and "see the" in line for line in lines)
        found = refused_or_answered(answer, str(scene.folder))
        return found._replace(wrong=found.wrong + (("the model's job broke",) if broken else ()))

    about = f"{method} {target[:200]!r} {headers[1:]!r} {content[:200]!r}"
    return Act(about, lambda: call(ask), terminal=False)


def _quoted(dice: Random, path: str) -> bytes:
    """A path as bytes of a request line: quoted, doubly quoted, or as it is where that is ASCII."""
    from urllib.parse import quote

    raw = path.encode("utf-8", "surrogatepass")
    way = dice.randrange(6)
    if way == 0:
        return quote(quote(raw, safe="/"), safe="/").encode()
    if way == 1:
        return quote(raw, safe="").encode()
    return quote(raw, safe="/:=,.").encode()


CALLERS: dict[str, Draw] = {
    "command lines": command_lines,
    "settings": settings,
    "conditions": conditions,
    "requests": requests,
}
