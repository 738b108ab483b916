"""The studies `relations` and `relation_validation` in words, and one head by its weights.

`account` tells the map in order, with `findings` for the details and `reading` for the numbers they are made from; `head`
tells one head, `validation` whether the scores are borne out in texts.
"""

from headwise.describe.relations.account import describe

__all__ = ["describe"]
