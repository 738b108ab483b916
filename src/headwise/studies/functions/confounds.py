"""Could a function be told without any head, from how the answer looks? A probe that sees only its form.

Functions differ in what is answered: numbers, names, yes and no. A probe on activations may read off the form of an
answer and call it a function. So the same split is tried with nothing but

    the answer's length (log of its tokens, and of its key tokens), and the kind of its first and of its first key token:
    number, yes or no, capitalised word, other word, sign, none

in a multinomial logistic regression. Where it does as well as the joint probe, the map may show heads that write
numbers. This module does not know activations.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

__all__ = ["form_of", "told_by_form"]

KINDS = ("number", "yes or no", "capitalised", "word", "sign", "none")


def kind_of(text: str) -> str:
    """The kind of a token.

    >>> [kind_of(text) for text in (" 12", "Yes", " Paris", " dog", ".", "")]
    ['number', 'yes or no', 'capitalised', 'word', 'sign', 'none']
    """
    text = text.strip()
    if text.casefold() in ("yes", "no"):
        return "yes or no"
    tests = (("none", not text), ("number", text[:1].isdigit()), ("capitalised", text[:1].isupper()))
    return next((name for name, holds in tests if holds), "word" if text[:1].isalpha() else "sign")


def form_of(answers: Sequence[str], keys: Sequence[str], tokens: Any, key_tokens: Any) -> NDArray[np.float64]:
    """(answer, feature): lengths, and the kinds of the answer's first word and of its first key token."""
    kinds = [(kind_of((answer.split() or [""])[0]), kind_of(key)) for answer, key in zip(answers, keys, strict=True)]
    hot = np.array([[float(kind == name) for kind in both for name in KINDS] for both in kinds])
    return np.column_stack([np.log1p(np.asarray(tokens, float)), np.log1p(np.asarray(key_tokens, float)), hot])


def told_by_form(form: NDArray[np.float64], labels: Any, trains: Any, classes: int) -> NDArray[np.float64]:
    """Log-probabilities (held-out row, class); a class that was not trained on is -inf."""
    labels, trains = np.asarray(labels), np.asarray(trains, dtype=bool)
    probe = make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000))
    probe.fit(form[trains], labels[trains])
    found = np.full((int((~trains).sum()), classes), -np.inf)
    found[:, probe[-1].classes_] = probe.predict_log_proba(form[~trains])
    return found
