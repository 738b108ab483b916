"""What a build tells of itself: a bar or some lines a study, a line a worker, a sentence where something happened."""

from __future__ import annotations

from collections.abc import Mapping

from headwise.cli.progress import Progressing
from headwise.engines import Listener

__all__ = ["Listening"]

LINES = 8  # workers that are shown one by one


class Listening(Listener):
    """Hears, and shows it with the bars."""

    def __init__(self, bars: Progressing) -> None:
        self._bars = bars

    def progress(self, study: str, done: int, total: int) -> None:
        """So many examples of a study are done."""
        self._bars.update(study, done, total)

    def ended(self, study: str) -> None:
        """A study is in the atlas."""
        self._bars.ended(study)

    def workers(self, study: str, doing: Mapping[str, str]) -> None:
        """What each worker does now; of many, how many do what."""
        if len(doing) <= LINES:
            self._bars.below([f"  {worker}: {what}" for worker, what in doing.items()])
            return
        kinds: dict[str, int] = {}
        for what in doing.values():
            kind = what.partition(" ")[0].rstrip(",")
            kinds[kind] = kinds.get(kind, 0) + 1
        self._bars.below([f"  {len(doing)} workers: " + ", ".join(f"{count} {kind}" for kind, count in kinds.items())])

    def event(self, sentence: str) -> None:
        """Something happened."""
        self._bars.say(sentence)
