"""Questions with answers and labels, as a user's file has them, in the tiny tokenizer's words."""

from __future__ import annotations

import json
import random
from pathlib import Path

from planted import tiny_passages


def rows(count: int, label: str | None = None) -> list[dict]:
    """Labelled by a rule that attention could see: the length."""
    rng = random.Random(0)
    words = " ".join(p.text for p in tiny_passages(6).items).replace("\n", " ").split()
    made = []
    for index in range(count):
        answer = " ".join(rng.sample(words, rng.choice((2, 3, 6, 8))))
        judged = label or ("wrong" if len(answer.split()) > 4 else "correct")
        question = " ".join(rng.sample(words, 8))
        made.append({"id": f"q{index}", "question": question, "answers": ["gold"], "response": answer, "label": judged})
    return made


def write(path: Path, made: list[dict]) -> Path:
    """The rows as JSON lines."""
    path.write_text("\n".join(json.dumps(row) for row in made), encoding="utf-8")
    return path
