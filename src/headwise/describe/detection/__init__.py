"""The study `detection` in words: `account` in order, `findings` the details, `reading` the numbers they are made from."""

from headwise.describe.detection.account import describe

__all__ = ["describe"]
