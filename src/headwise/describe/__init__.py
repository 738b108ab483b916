"""Datasets in words: computed sentences in which every number can be recomputed.

    description = atlas.describe("profile")
    print(description.text())          # or .markdown(), .sections(), .short() for an alternative text
    description.numbers                # each number of the text, with its value and its source

In reading order: `maps` (facts of a layer x head map), `writer` (sentences and their numbers), `phrases`, `narrative` (the
order of a description), `narrator` (sentences about layer x head maps, and the generic description). Each study's own
words are in ``studies/<name>/words.py``.
"""

from headwise.describe import maps
from headwise.describe.narrator import generic
from headwise.describe.writer import Description, Number, Writer

__all__ = ["Description", "Number", "Writer", "generic", "maps"]
