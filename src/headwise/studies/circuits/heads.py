"""What is left of a task when only some heads run on the clean prompt, and all others say what the corrupt one made them say.

`kept` is exact: one pass over the clean prompts in which the z of every head outside the set is that of the corrupt run
(activation patching). The last token of both prompts is the same, so with no head kept the score is the corrupt run's,
and with all of them the clean run's.

Every row of a batch has a set of its own, so a pass tries several sizes, or as many random sets as there are prompts.
Cost: one pass a set. This module does not know how heads were ranked.
"""

from __future__ import annotations

import torch
from torch import Tensor

from headwise.instruments import RawHeadOutputs
from headwise.interventions import Replace
from headwise.seam import observe
from headwise.studies.circuits.bench import Bench

__all__ = ["HeadPatching"]


class HeadPatching:
    """The clean and corrupt runs of some prompts, ready to be mixed head by head."""

    def __init__(self, bench: Bench, batch_tokens: int = 2048):
        self.bench = bench
        self.sets = max(1, batch_tokens // (bench.tokens * len(bench)))  # sets of heads that go into one pass
        self.corrupt_z = _streams(bench, bench.corrupt)

    @torch.no_grad()
    def kept(self, keep: Tensor) -> Tensor:
        """(set, prompt) scores; `keep` is (set, prompt or 1, layer, head) bool."""
        keep = keep.expand(-1, len(self.bench), -1, -1)
        parts = [self._run(part) for part in keep.split(self.sets)]
        return torch.cat(parts)

    def _run(self, keep: Tensor) -> Tensor:
        times = len(keep)
        values = {layer: z.repeat(times, 1, 1, 1) for layer, z in self.corrupt_z.items()}
        with observe(self.bench.structure, Replace(values, ~keep.flatten(0, 1))):
            logits = self.bench.logits(self.bench.clean.repeat(times, 1))
        return self.bench.score(logits).view(times, -1)


@torch.no_grad()
def _streams(bench: Bench, ids: Tensor) -> dict[int, Tensor]:
    streams = RawHeadOutputs()
    with observe(bench.structure, streams):
        bench.structure.decoder(input_ids=ids, use_cache=False)
    return streams.z
