"""The study `spectral` in words: `account` in order, `findings` the details, `reading` the numbers they are made from."""

from headwise.describe.spectral.account import describe

__all__ = ["describe"]
