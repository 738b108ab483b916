"""Changes to heads, in forward passes and in generation. An intervention changes; it never measures."""

from headwise.interventions.drop_attention import DropAttention
from headwise.interventions.heads import OnHeads, PerExample, ScaleHeads
from headwise.interventions.resample import Replace, ResampleAblation
from headwise.interventions.vectors import MeanAblation, Steer

__all__ = [
    "DropAttention", "MeanAblation", "OnHeads", "PerExample", "Replace", "ResampleAblation", "ScaleHeads", "Steer"
]  # fmt: skip
