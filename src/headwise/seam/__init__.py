"""The seam: the only folder that knows how transformers computes attention.

`observe` puts instruments and interventions on a running model; `check` proves on the spot that what they see is
what the model does.
"""

from headwise.seam.attention_call import AttentionCall, ForwardContext
from headwise.seam.headweights import HeadWeights, LayerWeights
from headwise.seam.interface import routed
from headwise.seam.observation import Observation, observe
from headwise.seam.positions import Positions, check_positions, position_index, position_mask
from headwise.seam.projection import OutputProjection, output_projections
from headwise.seam.refusal import refuse_unseeable
from headwise.seam.structure import Structure
from headwise.seam.verdict import Check, Verdict
from headwise.seam.verify import check
from headwise.seam.watching import Instrument, Intervention

__all__ = [
    "AttentionCall",
    "Check",
    "ForwardContext",
    "HeadWeights",
    "Instrument",
    "Intervention",
    "LayerWeights",
    "Observation",
    "OutputProjection",
    "Positions",
    "Structure",
    "Verdict",
    "check",
    "check_positions",
    "observe",
    "output_projections",
    "position_index",
    "position_mask",
    "refuse_unseeable",
    "routed",
]
