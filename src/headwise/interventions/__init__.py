"""Changes to heads, in forward passes and in generation. An intervention changes; it never measures."""

from headwise.interventions.heads import OnHeads
from headwise.interventions.resample import Resample
from headwise.interventions.scale import Scale
from headwise.interventions.vectors import Mean, Steer

__all__ = ["Mean", "OnHeads", "Resample", "Scale", "Steer"]
