"""Groups of topics on an axis: by their own names if those are short, else by letters that a note explains."""

from __future__ import annotations

from collections.abc import Sequence

LONGEST = 16  # letters of a name that still fits beside a map


def short_names(topics: Sequence[str]) -> dict[str, str]:
    """What is written at each topic.

    >>> short_names(["art", "body"])
    {'art': 'art', 'body': 'body'}
    >>> short_names(["animals, art, body", "rivers"])
    {'animals, art, body': 'A', 'rivers': 'B'}
    """
    if all(len(topic) <= LONGEST for topic in topics):
        return {topic: topic for topic in topics}
    return {topic: chr(ord("A") + place) for place, topic in enumerate(topics)}


def letters_told(names: dict[str, str]) -> str:
    """What the letters stand for, as a sentence; nothing where there are none."""
    told = [f"{letter}: {topic}" for topic, letter in names.items() if letter != topic]
    return f"{'; '.join(told)}." if told else ""
