"""Maps in words: what a careful reader would see, every number computed from the data.

    words = atlas.describe("profile")
    print(words.text())          # or .markdown(), .sections(), .short() for an alt text
    words.numbers                # each number of the text, with its value and what it is

`maps` holds what every study can ask of a layer x head map; each study's own words are in ``studies/<name>/words.py``.
"""

from headwise.describe import maps
from headwise.describe.words import Number, Words, Writer

__all__ = ["Number", "Words", "Writer", "maps"]
