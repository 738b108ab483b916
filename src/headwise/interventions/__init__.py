"""Changes to heads, in forward passes and in generation. An intervention changes; it never measures."""

from headwise.interventions.by_row import ByRow
from headwise.interventions.dropping import Drop
from headwise.interventions.heads import OnHeads
from headwise.interventions.replacement import Replace
from headwise.interventions.resample import Resample
from headwise.interventions.scale import Scale
from headwise.interventions.vectors import Mean, Steer

__all__ = ["ByRow", "Drop", "Mean", "OnHeads", "Replace", "Resample", "Scale", "Steer"]
