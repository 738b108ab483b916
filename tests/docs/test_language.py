"""The field's language: no banned word, no distributive "a", one class per name, and every glossary link defined.

`BASELINE` is what was still there when the renaming began, by area. A count may fall, never rise; an area that is not
listed must be clean. Areas are whole trees, since files move between folders. Print the findings of one area with

    python tests/docs/test_language.py docs
"""

from __future__ import annotations

import ast
import io
import json
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "headwise"
TOOLS = (ROOT / "benchmarks", ROOT / "scripts")
GLOSSARY = ROOT / "docs" / "glossary.md"
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))

BASELINE: dict[str, int] = {"strings": 2}  # "beside" in prompts of circuits and patterns: data, which fixes the numbers
DUPLICATED_CLASSES = 0

WORDS = ("anew", "nought", "beside", "told", "dealt", "hitherto", "whence", "whoever")
CONSTANTS = ("FACES", "LEAST")
# "one number a head" for "one number per head": a count, a noun, "a", and a noun that things are counted by
COUNT = r"(?:two|three|four|five|six|seven|eight|nine|ten|eleven|several|many|some|few|\d[\d,.]*)"
UNIT = (
    r"(?:batch|column|example|file|fold|function|head|kind|layer|line|model|pass|process|prompt|question|relation|row|"
    r"shard|study|task|text|token|worker)"
)
NO_NOUN = (
    r"(?!(?:and|as|at|be|but|by|changes|compute|for|from|gets|fits|GPU|has|if|in|into|is|it|like|makes|maps|nor|not|of|on|or|over|switches|than|that|to|was|"
    r"what|when|where|which|who|whose|with|within|without)\b)"
)
SINGULAR = rf"(?:one|an?) (?:{NO_NOUN}[\w-]+ )?{NO_NOUN}[\w-]*(?:[^s\W]|ss)"  # "a map describes a model" is English
DISTRIBUTIVE = rf"\b(?:{SINGULAR}|{COUNT} (?:{NO_NOUN}[\w-]+ ){{0,1}}{NO_NOUN}[\w-]+) (?-i:an?) {UNIT}\b"
BANNED = re.compile(rf"\b(?:{'|'.join(WORDS)})\b|\b(?:{'|'.join(CONSTANTS)})\b|{DISTRIBUTIVE}", re.IGNORECASE)
PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
FENCED = re.compile(r"^( *)(`{3,}).*?^\1\2`*[ \t]*$", re.MULTILINE | re.DOTALL)
GLOSSARY_LINK = re.compile(r"\]\((?:\.\./)*glossary\.md#([\w-]+)\)")
GENERATED = {ROOT / "docs" / "reference" / "cli.md"}  # made from the help texts, which are held in src


def in_text(text: str) -> list[str]:
    paragraphs = (re.sub(r"\s+", " ", one) for one in re.split(r"\n\s*\n|\n(?=\s*[#|*-])", text))
    found = [match[0] for one in paragraphs for match in BANNED.finditer(one)]
    return [one for one in found if one.upper() not in CONSTANTS or one in CONSTANTS]  # "at least" is English


def in_name(name: str) -> list[str]:
    return [part for part in PARTS.findall(name) if part.lower() in WORDS or part in CONSTANTS]


def names(tree: ast.AST) -> Iterator[str]:
    """What a file names: functions, classes, parameters, variables, attributes that it sets, keywords."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.id if isinstance(node, ast.Name) else node.attr
        elif isinstance(node, ast.alias) and node.asname:
            yield node.asname


def python() -> Iterator[tuple[str, Path, list[str]]]:
    for path in sorted(one for folder in (SOURCE, *TOOLS) for one in folder.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        tree = ast.parse(text)
        found = [one for name in {*names(tree), path.stem, path.parent.name} for one in in_name(name)]
        yield "identifiers", path, found
        strings = [
            node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)
        ]
        yield "strings", path, [one for string in strings for one in in_text(string)]
        comments = [
            token.string
            for token in tokenize.generate_tokens(io.StringIO(text).readline)
            if token.type == tokenize.COMMENT
        ]
        yield "comments", path, [one for comment in comments for one in in_text(comment)]


def pages() -> list[Path]:
    return [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md")), *NOTEBOOKS]


def prose(page: Path) -> str:
    """A page without its blocks of code; of a notebook the text between its cells."""
    if page.suffix == ".ipynb":
        cells = json.loads(page.read_text(encoding="utf-8"))["cells"]
        return "\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    return FENCED.sub("", page.read_text(encoding="utf-8"))


def findings() -> dict[str, list[str]]:
    """Area -> every banned word in it, with its file."""
    found: dict[str, list[str]] = {}

    def add(area: str, path: Path, words: list[str]) -> None:
        found.setdefault(area, []).extend(f"{path.relative_to(ROOT)}: {word}" for word in words)

    for kind, path, words in python():
        add(kind, path, words)
    for path in sorted(SOURCE.rglob("*")):
        if path.suffix in (".js", ".html", ".css"):
            text = path.read_text(encoding="utf-8")
            add("web", path, [*in_text(text), *in_name(path.stem)])
    for page in pages():
        if page not in GENERATED:
            add("docs", page, in_text(prose(page)))
    return found


FOUND = findings()


@pytest.mark.parametrize("area", FOUND)
def test_no_banned_word(area: str):
    allowed = BASELINE.get(area, 0)
    listed = "\n".join(FOUND[area][:60])
    assert len(FOUND[area]) <= allowed, f"{len(FOUND[area])} banned words, {allowed} are allowed:\n{listed}"


def duplicated_classes() -> dict[str, int]:
    count = Counter(
        node.name
        for path in SOURCE.rglob("*.py")
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.ClassDef)
    )
    return {name: many for name, many in count.items() if many > 1}


def test_a_class_name_exists_once():
    found = duplicated_classes()
    assert len(found) <= DUPLICATED_CLASSES, sorted(found)


def defined_terms() -> set[str]:
    """The anchors of the glossary, as MkDocs makes them."""
    headings = re.findall(r"^#{2,3} (.+)$", GLOSSARY.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", heading).strip().lower()) for heading in headings}


def test_every_glossary_term_that_is_linked_is_defined():
    terms = defined_terms()
    missing = {
        f"{page.relative_to(ROOT)}: {anchor}"
        for page in pages()
        for anchor in GLOSSARY_LINK.findall(page.read_text(encoding="utf-8"))
        if anchor not in terms
    }
    assert not missing


def test_every_term_says_what_it_is_here():
    entries = re.split(r"^### ", GLOSSARY.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    assert len(entries) >= 60
    assert [entry.splitlines()[0] for entry in entries if len(entry.split()) < 12] == []


@pytest.mark.parametrize(
    "wrong",
    [
        "one number a head",
        "eleven numbers a head",
        "an array a layer",
        "12 rows a question",
        "shuffled anew",
        "is nought",
    ],
)
def test_the_dialect_would_be_found(wrong: str):
    assert in_text(f"It has {wrong}.")


@pytest.mark.parametrize(
    "right", ["one number per head", "at least two", "a row of a head", "it is a head", "once a layer"]
)
def test_english_is_left_alone(right: str):
    assert not in_text(f"It has {right}.")


def test_names_are_split_into_words():
    assert in_name("dealt_labels") and in_name("toldOnce") and in_name("LEAST_ANSWERS") and in_name("FACES")
    assert not in_name("surfaces") and not in_name("at_least") and not in_name("besides")


if __name__ == "__main__":
    for area in sys.argv[1:] or FOUND:
        print(f"{area}: {len(FOUND[area])}", *FOUND[area], sep="\n  ")
