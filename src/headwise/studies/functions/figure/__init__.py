"""The figures of the studies `functions` and `function_masking`.

`maps` draws which heads carry which function, `companions` what stands beside the maps, `masking` what the model can still do
without these heads; `grid` says which functions are shown, and where.
"""

from headwise.studies.functions.figure.maps import figure

__all__ = ["figure"]
