"""Sparse post-training: teach a dense model to do its work over few attention edges (`headwise sparsify`).

Method sheet: gates on the logits (`kernels.gated`), their expected number pressed down, the loss held near the dense
model's. `recipe` says what a run does, `texts` what it reads, `student` what is trained, `pressure` how hard it is pressed,
`measures` what it costs in loss, `checkpoints` how a killed run goes on, and `run` puts them together.
"""

from headwise.training.recipe import Recipe
from headwise.training.run import refuse_finished, sparsify
from headwise.training.texts import Texts, read_texts, refuse_unreadable

__all__ = ["Recipe", "Texts", "read_texts", "refuse_finished", "refuse_unreadable", "sparsify"]
