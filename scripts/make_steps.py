"""Build Headwise's packaged steps: questions worked out in parts, each part labelled with a function of mind.

What is it for?
    To ask which attention heads carry which function (`headwise.corpora.steps`).  A probe learns to tell the function of
    a step from what the heads put out while the model answers; so the functions must not be distinguishable by something
    else, as far as that can be had: every function has numbers, names, words, yes and no among its right answers.

What makes a step usable here?
    * It is an open sentence ("The plural of ... is ...") that a model of 135M parameters completes rather often; the
      same asked as questions it nearly always fails.
    * Its end is short, and all true ways to write it are listed.
    * Every function has many forms of sentence; none is used much more often than the others.
    * All steps of one question stand in one split; and so do all uses of one row of a table (a fact, a word).

How a chain is made
    A link is a scene, a step of low order, and a step of high order after it, which nearly always needs it: the capital
    of France is Paris, so Ann should travel to Paris.  There are as many links of each of the sixteen pairs of functions,
    so all functions are used equally often.  A chain is one link, or two with their steps in turn ("lhlh") or the low
    steps first ("llhh"); its main question is the scenes and the last sentence.

    ``steps_facts/links.txt``       the forms of links, a line each
    ``steps_facts/tables.txt``      facts and words that fill them; all ours
    ``steps_forms/``                how they are read and filled

Use
    ``python scripts/make_steps.py``             write the set and print the counts
    ``python scripts/make_steps.py --check``     fail if the file on disk is not what this script gives
    ``python scripts/make_steps.py --print``     also print all chains, to read over
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from steps_forms.links import HIGH, LETTERS, LOW, Form, Link, forms, link_of, tables
from steps_forms.scenes import drawn, with_row

OUTPUT = Path(__file__).resolve().parent.parent / "src" / "headwise" / "corpora" / "data" / "steps.jsonl"
EACH = {"train": 18, "held-out": 12}  # links of each of the sixteen pairs of functions
ORDERS = ("lh", "llhh", "lh", "lhlh", "llhh")  # the steps of chains, in turn
TRIES = 500


class Source:
    """Gives links of a pair of functions, every form and every row of a table in its turn, nothing twice."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.forms, self.tables = forms(), tables()
        self.used: Counter[Any] = Counter()
        self.seen: set[str] = set()

    def link(self, low: str, high: str, split: str, taken: list[str]) -> Link:
        """The next link of these two functions in this split, about other people than those taken."""
        own = [form for form in self.forms if (form.low, form.high) == (low, high)]
        for attempt in range(TRIES):
            form = min(own, key=lambda form: (self.used[form, split] + attempt // 20, own.index(form)))
            link = self._filled(form, split, taken)
            if not {link.low.text + link.scene, link.high.text + link.scene} & self.seen:
                self.seen |= {link.low.text + link.scene, link.high.text + link.scene}
                return link
        raise LookupError(f"nothing new is left for {low}>{high} in {split}; add forms or rows")

    def _filled(self, form: Form, split: str, taken: list[str]) -> Link:
        slots = drawn(self.rng, taken)
        self.used[form, split] += 1
        if form.table:
            rows = [row for place, row in enumerate(self.tables[form.table]) if home(place) == split]
            row = min(rows, key=lambda row: (self.used[form.low, form.table, row], self.used[form.table, row], row))
            self.used[form.low, form.table, row] += 1
            others = [one[0] for one in rows if one != row]
            slots = with_row(slots, row) | {"other": self.rng.choice(others)}
        self.used[form] += 1
        return link_of(form, slots, self.used[form])


def home(place: int) -> str:
    """The split of a row of a table, so that no fact stands in both."""
    return "held-out" if place % 5 in (1, 3) else "train"


def chains_of(split: str, source: Source, rng: random.Random) -> list[tuple[str, list[Link]]]:
    """The links of a split in chains of one or two, each with the order of its steps."""
    pairs = [(low, high) for low in LOW for high in HIGH] * EACH[split]
    rng.shuffle(pairs)
    found = []
    while pairs:
        order = ORDERS[len(found) % len(ORDERS)] if len(pairs) > 1 else "lh"
        links: list[Link] = []
        for _ in range(len(order) // 2):
            low, high = next((pair for pair in pairs if not _meets(pair, links)), pairs[0])
            pairs.remove((low, high))
            links.append(source.link(low, high, split, re.findall(r"\w+", str(links))))
        found.append((order, links))
    return found


def _meets(pair: tuple[str, str], links: list[Link]) -> bool:
    """Whether one of the functions is in the chain already."""
    return any({LETTERS[letter] for letter in pair} & {link.low.function, link.high.function} for link in links)


def rows() -> list[dict[str, Any]]:
    """All steps as the packaged file has them."""
    rng = random.Random(20261)
    source = Source(rng)
    found: list[dict[str, Any]] = []
    number = 0
    for split in EACH:
        for order, links in chains_of(split, source, rng):
            number += 1
            found += rows_of(f"steps-{number:03}", split, order, links)
    return found


def rows_of(chain: str, split: str, order: str, links: list[Link]) -> list[dict[str, Any]]:
    """The steps of one chain; the last is what the main question asks."""
    lows, highs = [link.low for link in links], [link.high for link in links]
    parts = [{"l": lows, "h": highs}[letter].pop(0) for letter in order]
    question = " ".join([*(link.scene for link in links), parts[-1].text])
    built = any(link.builds for link in links)
    return [
        {
            "built": built,
            "id": f"{chain}-{place + 1}",
            "chain": chain,
            "question": question,
            "earlier": [[part.text, part.answers[0]] for part in parts[:place]],
            "subquestion": part.text,
            "answers": list(part.answers),
            "function": part.function,
            "split": split,
            "number": place + 1,
        }
        for place, part in enumerate(parts)
    ]


def text_of(steps: list[dict[str, Any]]) -> str:
    """The packaged file."""
    return "".join(
        json.dumps({key: value for key, value in step.items() if key != "built"}, ensure_ascii=False) + "\n"
        for step in steps
    )


def main() -> int:
    """Write, check or print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--print", action="store_true", dest="show")
    options = parser.parse_args()
    steps = rows()
    if options.check:
        same = OUTPUT.exists() and OUTPUT.read_text(encoding="utf-8") == text_of(steps)
        print("as it should be" if same else "not what the facts and forms give; run scripts/make_steps.py")
        return 0 if same else 1
    OUTPUT.write_text(text_of(steps), encoding="utf-8")
    show_counts(steps)
    for step in steps if options.show else ():
        if step["number"] == 1:
            print(f"\n[{step['split']}] {step['chain']}  {step['question']}")
        print(f"    {step['function']:24} {step['subquestion']}  ->  {' / '.join(step['answers'])}")
    return 0


def kind_of(answer: str) -> str:
    """The kind of an answer, from how it is written."""
    if answer in ("yes", "no"):
        return answer
    if answer[0].isdigit():
        return "number"
    return "name" if answer[0].isupper() else "word"


def show_counts(steps: list[dict[str, Any]]) -> None:
    """Steps by function, split and kind of answer."""
    print(
        f"{len(steps)} steps of {len({step['chain'] for step in steps})} questions, "
        f"{len({step['chain'] for step in steps if step['built']})} with a step that builds on another"
    )
    for function in LETTERS.values():
        own = [step for step in steps if step["function"] == function]
        splits, kinds = Counter(step["split"] for step in own), Counter(kind_of(step["answers"][0]) for step in own)
        print(f"{function:24}", dict(splits), dict(sorted(kinds.items())))


if __name__ == "__main__":
    sys.exit(main())
