"""Sparse post-training: train a dense model to work with few attention edges (`headwise sparsify`).

Method: gates on the attention logits (`kernels.gated`); the expected number of open gates is penalised while the loss is
constrained to stay near the dense model's. `recipe` has the settings and the penalty's controller, `texts` the data,
`student` the trained weights and their losses, `checkpoints` the files; `run` is the training loop. Names are loaded on
first use: the recipe alone loads no torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwise.core.lazy import lazy_exports

if TYPE_CHECKING:
    from headwise.training.recipe import SparsityRecipe
    from headwise.training.run import require_unfinished, sparsify
    from headwise.training.texts import Texts, read_texts, require_readable

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        ".recipe": "SparsityRecipe",
        ".run": "require_unfinished sparsify",
        ".texts": "Texts read_texts require_readable",
    },
)

__all__ = ["SparsityRecipe", "Texts", "read_texts", "require_readable", "require_unfinished", "sparsify"]
