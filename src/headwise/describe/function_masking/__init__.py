"""The study `function_masking` in words: `account` tells it in order, `findings` its details, `reading` has the numbers."""

from headwise.describe.function_masking.account import describe

__all__ = ["describe"]
