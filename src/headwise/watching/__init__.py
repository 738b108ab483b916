"""Answers scored while they are written: `watch` a model's generation, raise alarms with a stated guarantee."""

from headwise.watching.fitted import WatchedScore, known_scores, watchable
from headwise.watching.generation import Prompt, Stream, TokenScore
from headwise.watching.watcher import Watch, WatchedAnswer, watch

__all__ = [
    "Prompt",
    "Stream",
    "TokenScore",
    "Watch",
    "WatchedAnswer",
    "WatchedScore",
    "known_scores",
    "watch",
    "watchable",
]
