"""What a model is shown: texts, token sequences, and the batches they travel in. Nothing here runs a model."""

from headwise.corpora.delimiters import delimiter_ids
from headwise.corpora.passages import Passage, Passages, packaged_passages, read_passages
from headwise.corpora.repeats import REPEATS, repeated_random
from headwise.corpora.sequences import Batch, Example, batches

__all__ = [
    "REPEATS", "Batch", "Example", "Passage", "Passages", "batches", "delimiter_ids", "packaged_passages",
    "read_passages", "repeated_random",
]  # fmt: skip
