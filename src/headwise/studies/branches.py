"""Many continuations of a prompt in one batch, without copies of the prompt's KV cache.

Continuing 64 rows with a copy of their prompt's cache each costs more for the copies than for the model: on two cores, ten
times as much. Here a row of the batch is a prompt, and the tokens of a pass are the next tokens of its branches:

    row 0    | prompt 0 ......... | a b c d |          four branches
    row 1    | padding | prompt 1 | e f . . |          two, and padding
    next     | prompt 0 ......... | a b c d | A B C D |

A branch sees its prompt and its own earlier tokens: the mask says so, and positions continue from the prompt's last. The
pass sees no difference between this and a text, so interventions and instruments work; what the rows of a batch are to them
otherwise, the tokens of the pass are here (`grid`).

Cost: per step one token per branch, padded to the number of branches of the prompt with the most.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


class Branches:
    """Where every branch is in the batch, and what it sees.

    Args:
        cache: the KV cache of the prompts, one row for each.
        seen: (prompt, key) 1 for the cache's real tokens.
        last: (prompt, 1) the position of each prompt's last token.
        prompts: the prompt of every branch.
    """

    def __init__(self, cache: Any, seen: Tensor, last: Tensor, prompts: Sequence[int]):
        self.cache, self.prompts = cache, len(seen)
        self.row = torch.tensor(prompts, device=seen.device)  # (branch,) of the batch
        self.sees = seen.bool()[self.row]  # (branch, key)
        self.position = last[self.row, 0]  # (branch,)
        self._arrange()

    def select(self, lines: Tensor) -> None:
        """Retain these branches."""
        self.row, self.sees, self.position = self.row[lines], self.sees[lines], self.position[lines]
        self._arrange()

    def _arrange(self) -> None:
        """Prompts without a branch leave the batch; every branch gets a column among those of its prompt."""
        used, self.row = self.row.unique(return_inverse=True)
        if len(used) < self.prompts:
            self.cache.batch_select_indices(used)
        count = torch.bincount(self.row)
        order = self.row.argsort(stable=True)
        first = (count.cumsum(0) - count)[self.row[order]]
        self.column = torch.empty_like(order)
        self.column[order] = torch.arange(len(order), device=order.device) - first
        self.prompts, self.width = len(count), int(count.max())

    def grid(self, values: Tensor) -> Tensor:
        """(prompt, column): one value per branch, where its token is; 0 for padding."""
        found = values.new_zeros(self.prompts, self.width)
        found[self.row, self.column] = values
        return found

    def of_branches(self, grid: Tensor) -> Tensor:
        """(branch, ...): the entries of a (prompt, column, ...) tensor that are branches."""
        entry = self.row * self.width + self.column
        flat = grid.flatten(0, 1)
        in_order = len(entry) == len(flat) and torch.equal(entry, torch.arange(len(flat), device=entry.device))
        return flat if in_order else flat[entry]

    def append(self, tokens: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Ids, positions (prompt, column) and mask (prompt, 1, column, key) of the next pass: one token per branch."""
        self.position = self.position + 1
        branches, keys = self.sees.shape
        itself = self.sees.new_zeros(branches, self.width)
        itself[torch.arange(branches, device=tokens.device), self.column] = True
        self.sees = torch.cat([self.sees, itself], dim=1)
        mask = self.sees.new_zeros(self.prompts, self.width, keys + self.width)
        mask[:, :, keys:] = torch.eye(self.width, dtype=torch.bool, device=mask.device)  # padding sees itself
        mask[self.row, self.column] = self.sees
        return self.grid(tokens), self.grid(self.position), mask[:, None]
