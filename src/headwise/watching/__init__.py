"""Answers scored while they are written, or after: `watch` a model's generation, `detect` wrong answers, with thresholds.

In reading order: ``fitted`` (the scores of an atlas, their probabilities and thresholds), ``generation`` (answers that are
scored while they are written), ``watcher`` (`watch`), ``scoring`` (`AnswerScorer`, `detect`: given answers too).
"""

from headwise.watching.fitted import WatchedScore, known_scores, watchable
from headwise.watching.generation import Prompt, Stream, TokenScore
from headwise.watching.scoring import AnswerScorer, Score, detect
from headwise.watching.watcher import Watch, WatchedAnswer, watch

__all__ = [
    "AnswerScorer",
    "Prompt",
    "Score",
    "Stream",
    "TokenScore",
    "Watch",
    "WatchedAnswer",
    "WatchedScore",
    "detect",
    "known_scores",
    "watch",
    "watchable",
]
