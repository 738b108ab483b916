"""Changes to heads, in forward passes and in generation. An intervention changes; it never measures."""

from headwise.interventions.ablation import MeanAblation, Replace, ResampleAblation, Steer
from headwise.interventions.heads import DropAttention, OnHeads, PerExample, ScaleHeads

__all__ = [
    "DropAttention", "MeanAblation", "OnHeads", "PerExample", "Replace", "ResampleAblation", "ScaleHeads", "Steer"
]  # fmt: skip
