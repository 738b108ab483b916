"""What can be chosen about the patterns study."""

from __future__ import annotations

from dataclasses import dataclass

from headwise.core.errors import StudyError

SENTENCE = "The cat that the dog had chased slept under the table, and the dog slept beside the cat."
LEAST_PROMPTS = 6  # with fewer, no change whatever would pass a paired test
LEAST_TOKENS = 16
LEAST = {"prompts": LEAST_PROMPTS, "tokens": LEAST_TOKENS, "batch_tokens": 1, "shard": 1}


@dataclass(frozen=True)
class PatternsOptions:
    """What can be chosen about the study `patterns`: what do the attention maps look like, of one model or of two?

    Examples:
        The model beside itself without two heads.

        >>> PatternsOptions(prompts=8, heads_off="L3H1,L5H2").active
        0.01
    """

    prompts: int = 32  # texts that the numbers are means over
    tokens: int | None = None  # of each prompt; None: 128, or fewer where the texts or the context are shorter
    prompt: str = SENTENCE  # the one whose maps are kept whole
    active: float = 0.01  # an edge with more weight is active
    peak: float = 0.3  # a weight over this, off the diagonal, is a peak
    heads_off: str | None = None  # the model without these heads, such as "L3H1,L5H2", beside the whole one
    batch_tokens: int = 1024  # tokens in a batch, padding included
    shard: int = 16  # prompts between two commits

    def __post_init__(self) -> None:
        for name, least in LEAST.items():
            found = getattr(self, name)
            if found is not None and found < least:
                raise StudyError(f"patterns were asked for with {name}={found}, and need at least {least}; give more")
        for name in ("active", "peak"):
            if not 0 < getattr(self, name) < 1:
                raise StudyError(
                    f"patterns were asked for with {name}={getattr(self, name)}; attention weights lie between 0 and 1: "
                    "give a number between"
                )
