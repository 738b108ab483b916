"""The seam: the only folder that knows how transformers computes attention.

`observe` attaches instruments and interventions to a running model, `run` does so for texts in one line, and `check` verifies
that what they see is what the model computes. Extend it by subclassing `Instrument` or `Intervention`.

Import order: instrument, mask, outputs, interface, structure, between, forward, observation; projection, resume,
verify; layout, headweights.
"""

from headwise.seam.headweights import HeadWeights, LayerWeights
from headwise.seam.instrument import (
    AttentionCall,
    ForwardContext,
    Instrument,
    Intervention,
    Positions,
    check_positions,
    position_index,
    position_mask,
)
from headwise.seam.interface import routed
from headwise.seam.observation import Observation, observe, run
from headwise.seam.projection import OutputProjection, output_projections
from headwise.seam.resume import LayerOutputs, can_resume, resumed
from headwise.seam.structure import Structure, refuse_unseeable
from headwise.seam.verify import Check, CheckReport, check

__all__ = [
    "AttentionCall", "Check", "CheckReport", "ForwardContext", "HeadWeights", "Instrument", "Intervention",
    "LayerOutputs", "LayerWeights", "Observation", "OutputProjection", "Positions", "Structure", "can_resume", "check",
    "check_positions", "observe", "output_projections", "position_index", "position_mask", "refuse_unseeable", "resumed",
    "routed", "run",
]  # fmt: skip
