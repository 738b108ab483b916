"""The study `functions` in words: `account` tells the maps in order, `findings` their details, `reading` has the numbers."""

from headwise.describe.functions.account import describe

__all__ = ["describe"]
