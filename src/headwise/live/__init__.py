"""What the explorer does with a loaded model: look at a prompt, open a head, change heads, score an answer.

Import order: shapes, packing, watch; prompts, speaking; small_maps, windows, keeping; effects, pictures, looks,
scores; session.
"""

from headwise.live.prompts import LIMIT, MODES, longest
from headwise.live.session import LONGEST_ANSWER, Session

__all__ = ["LIMIT", "LONGEST_ANSWER", "MODES", "Session", "longest"]
