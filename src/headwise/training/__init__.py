"""Sparse post-training: train a dense model to work with few attention edges (`headwise sparsify`).

Method: gates on the attention logits (`kernels.gated`); the expected number of open gates is penalised while the loss is
constrained to stay near the dense model's. `recipe` has the settings and the penalty's controller, `texts` the data,
`student` the trained weights and their losses, `checkpoints` the files; `run` is the training loop.
"""

from headwise.training.recipe import Recipe
from headwise.training.run import require_unfinished, sparsify
from headwise.training.texts import Texts, read_texts, require_readable

__all__ = ["Recipe", "Texts", "read_texts", "require_readable", "require_unfinished", "sparsify"]
