"""Build Headwise's packaged relations from lists of facts.

What is a relation?
    Pairs of words, source and target: country and capital, verb and past tense, word and first letter.  With
    them one can ask of an attention head whether it maps the one to the other.

What makes a pair usable here?
    * It is true, without a footnote.
    * Both words are single words: a head's matrix maps one token to one token, so that what a tokenizer splits
      is lost anyway (how much, depends on the tokenizer; see `headwise.corpora.relations`).
    * Source and target differ, also but for letter case, unless the relation is about copying or letter case:
      otherwise a head that copies would seem to translate.
    * The lists were read over by eye, and looked up in a dictionary where one could be had (see the sources).
    * No pair stands twice.  A source may have several targets, each a pair of its own.

How the relations are made
    ``scripts/relations_facts/<relation>.txt`` has a head of ``key: value`` lines and a body::

        name: antonym
        category: linguistic
        source: where the facts come from
        template: The opposite of {s} is            (a text that the target completes; several)
        pairs:
        hot:cold big:small ...                       (to the end of the file)

    In place of ``pairs`` a head may have ``rule`` and ``words`` (a file of words, ``<words>.words``) or ``years``
    (first and last): the rules are in `RULES`.

Use
    ``python scripts/make_relations.py``             write the relations and print the counts
    ``python scripts/make_relations.py --check``     fail if the files on disk are not what the lists give
    ``python scripts/make_relations.py --tokenizer FOLDER``   also print how many pairs its tokenizer keeps
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
FACTS = ROOT / "scripts" / "relations_facts"
OUTPUT = ROOT / "src" / "headwise" / "corpora" / "data" / "relations"
CATEGORIES = ("algorithmic", "knowledge", "linguistic", "translation")
MIN_RELATIONS, MIN_PAIRS = 24, 60
CASE = ("uppercase", "capitalised")  # relations in which source and target may differ by case alone

RULES = {
    "same": lambda word: word,
    "first": lambda word: word[0],
    "last": lambda word: word[-1],
    "upper": str.upper,
    "capital": str.capitalize,
    "next": lambda year: str(int(year) + 1),
}


def read(path: Path) -> dict[str, Any]:
    """One file of facts."""
    head, _, body = path.read_text(encoding="utf-8").partition("pairs:\n")
    lines = [line.split(": ", 1) for line in head.splitlines() if line]
    facts = {key: value for key, value in lines if key != "template"}
    facts["templates"] = [value for key, value in lines if key == "template"]
    facts["pairs"] = [pair.split(":") for pair in body.split()] if body else computed(facts)
    return facts


def computed(facts: dict[str, Any]) -> list[list[str]]:
    """The pairs that a rule gives."""
    rule = RULES[facts["rule"]]
    if "years" in facts:
        first, last = map(int, facts["years"].split())
        sources = [str(year) for year in range(first, last)]
    else:
        sources = (FACTS / f"{facts['words']}.words").read_text(encoding="utf-8").split()
    return [[source, rule(source)] for source in dict.fromkeys(sources)]


def faults(facts: dict[str, Any]) -> list[str]:
    """What is wrong with a relation, in words."""
    name, pairs = facts["name"], [tuple(pair) for pair in facts["pairs"]]
    found = [f"{name}: {pair} is not a pair of words" for pair in pairs if len(pair) != 2 or not all(pair)]
    found += [f"{name}: {pair} stands {count} times" for pair, count in Counter(pairs).items() if count > 1]
    if "copying" not in facts:
        fold = str if name in CASE else str.casefold
        alike = [pair for pair in pairs if fold(pair[0]) == fold(pair[1])]
        found += [f"{name}: {pair} has one word twice" for pair in alike]
    if facts["category"] not in CATEGORIES or not facts.get("source"):
        found.append(f"{name}: a category of {CATEGORIES} and a source are needed")
    if len(facts["templates"]) < 2 or any(text.count(" {s}") != 1 for text in facts["templates"]):
        found.append(f"{name}: at least two templates are needed, each with {{s}} once, after a blank")
    if len(pairs) < MIN_PAIRS:
        found.append(f"{name}: {len(pairs)} pairs, at least {MIN_PAIRS} are needed")
    return found


def text_of(facts: dict[str, Any]) -> str:
    """The packaged file: what `headwise.corpora.read_relations` reads, ten pairs per line."""
    head = {
        "category": facts["category"],
        "copying": facts.get("copying") == "yes",
        "source": facts["source"],
        "templates": facts["templates"],
    }
    pairs = [json.dumps(pair, ensure_ascii=False) for pair in facts["pairs"]]
    lines = ",\n".join(", ".join(pairs[start : start + 6]) for start in range(0, len(pairs), 6))
    start = json.dumps({facts["name"]: head}, ensure_ascii=False, indent=1).removesuffix("\n }\n}")
    return f'{start},\n  "pairs": [\n{lines}\n]}}}}\n'


def main() -> int:
    """Write, check or count."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--tokenizer")
    options = parser.parse_args()
    relations = [read(path) for path in sorted(FACTS.glob("*.txt"))]
    wrong = [fault for facts in relations for fault in faults(facts)]
    if len(relations) < MIN_RELATIONS:
        wrong.append(f"{len(relations)} relations, at least {MIN_RELATIONS} are needed")
    if wrong:
        print("\n".join(wrong))
        return 1
    texts = {f"{facts['name']}.json": text_of(facts) for facts in relations}
    if options.check:
        there = {path.name: path.read_text(encoding="utf-8") for path in OUTPUT.glob("*.json")}
        print("as they should be" if there == texts else "not what the lists give; run scripts/make_relations.py")
        return 0 if there == texts else 1
    OUTPUT.mkdir(parents=True, exist_ok=True)
    for path in OUTPUT.glob("*.json"):
        path.unlink()
    for name, text in texts.items():
        (OUTPUT / name).write_text(text, encoding="utf-8")
    print(f"{len(texts)} relations, {sum(len(facts['pairs']) for facts in relations)} pairs")
    if options.tokenizer:
        count(options.tokenizer)
    return 0


def count(folder: str) -> None:
    """How many pairs of each relation a tokenizer keeps."""
    from transformers import AutoTokenizer

    from headwise.corpora import packaged_relations, single_token_pairs

    tokenizer = AutoTokenizer.from_pretrained(folder)
    for relation in packaged_relations():
        print(f"{relation.category:12} {relation.name:18} {single_token_pairs(relation, tokenizer).words}")


if __name__ == "__main__":
    sys.exit(main())
