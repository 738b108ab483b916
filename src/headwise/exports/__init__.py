"""An atlas in other tools' formats, one module per tool. Nothing here measures: neither torch nor transformers is imported."""

from headwise.exports.headvis import write_headvis

__all__ = ["write_headvis"]
