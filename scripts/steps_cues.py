"""What tells the functions of the packaged steps apart without any model? The second table of docs/studies/function-data.md.

    python scripts/steps_cues.py

A linear classifier is shown one cue of each step (the kind of the right answer, its words, ...), learns from the steps
of the split "train" and is tested on those held out. Where a cue does well, a probe of heads could do well by it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sklearn.feature_extraction import DictVectorizer
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from headwise.corpora import Step, packaged_steps


def kind(step: Step) -> str:
    """The kind of the right answer, from how it is written."""
    if step.answer in ("yes", "no"):
        return "yes-no"
    if step.answer[0].isdigit():
        return "number"
    return "name" if step.answer[0].isupper() else "word"


def facts(step: Step) -> dict[str, Any]:
    """Kind and length of the answer, and the step's place."""
    return {
        "kind": kind(step),
        "place": str(step.number),
        "words": len(step.answer.split()),
        "letters": len(step.answer),
    }


CUES: dict[str, Callable[[Step], Any]] = {  # what is seen: a dict of facts, or a text whose words are counted
    "the kind of the right answer": lambda step: {"kind": kind(step)},
    "place in the chain": lambda step: {"place": str(step.number)},
    "kind, place and length of the answer": facts,
    "the words of the right answer": lambda step: step.answer,
    "length of question and subquestion": lambda step: {"all": len(step.question), "own": len(step.subquestion)},
    "the first two words of the subquestion": lambda step: " ".join(step.subquestion.split()[:2]),
    "all words of the subquestion": lambda step: step.subquestion,
}


def main() -> None:
    """Learn, test, print a row for each cue."""
    steps = packaged_steps()
    train, held = list(steps.split("train")), list(steps.split("held-out"))
    for name, cue in CUES.items():
        counted = isinstance(cue(train[0]), str)
        seen = CountVectorizer(token_pattern=r"\w+") if counted else DictVectorizer()
        classifier = make_pipeline(seen, LogisticRegression(max_iter=2000))
        classifier.fit(list(map(cue, train)), [step.function for step in train])
        right = classifier.score(list(map(cue, held)), [step.function for step in held])
        print(f"| {name} | {100 * right:.0f} % |")


if __name__ == "__main__":
    main()
