"""Is the answer to a step right? By the rules of `matching`, label-blind: the answer and the right answers, nothing else.

Normalised match, numeric match, whole words in the first sentence, token F1 for long right answers; a right answer that
stands among several candidates ("12 or 15") is not given. Neither the function of the step nor what the model says
without intervention has a say: "the same as before" is right only if it was right before.

The end of an open sentence (a subquestion that ends in "...") is what is said up to the next clause: of "8 eggs, and Ann
saw two" it is "8 eggs". A mere second candidate ("8, and 9") is no clause.

The main question is not shown to the rules: in many steps (retrieval, choices) the right answer stands in it, and
saying it is the task.
"""

from __future__ import annotations

import re

from headwise.corpora.matching import CORRECT, Verdict, judge
from headwise.corpora.steps import Step

__all__ = ["judge_step", "right"]

CLAUSE = re.compile(r";|, (?:and|but|so|which|who)\s+\S+\s+\S")  # two words at least after the comma's


def judge_step(step: Step, text: str) -> Verdict:
    """The label of an answer, and the rule that gave it."""
    said = text.strip()
    if step.subquestion.endswith("..."):
        said = CLAUSE.split(said)[0] or said
    return judge(said, step.answers)


def right(step: Step, text: str) -> bool:
    """Whether this answers the step.

    >>> step = Step("s", "c", "", (), "What is 3 plus 4?", "7", ("7",), "Math Calculation", "train", 1)
    >>> right(step, "3 + 4 = 7"), right(step, "Seven."), right(step, "7 or 8"), right(step, "")
    (True, True, False, False)
    """
    return judge_step(step, text).label == CORRECT
