"""The study `patterns` in words: `account` in order, `findings` one model, `changes` two, `reading` the numbers."""

from headwise.describe.patterns.account import describe

__all__ = ["describe"]
