"""The spec of the study `profile`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headwise.core.dims import EXAMPLE, HEAD, LAYER, STATISTIC
from headwise.core.options import batch_tokens_option, shard_option
from headwise.core.schema import TEXT
from headwise.studies.cost import PlannedInputs, StudyCost, forward_flops
from headwise.studies.spec import (
    DatasetSpec,
    FigureOption,
    FigureVariant,
    HeadColumn,
    Method,
    Renames,
    StudyOptions,
    StudySpec,
    Variable,
    option,
)

if TYPE_CHECKING:
    from headwise.model.card import ModelCard


@dataclass(frozen=True)
class ProfileOptions(StudyOptions):
    """What can be chosen about the study `profile`: where does each head attend?

    Examples:
        Longer texts and longer repeated sequences than usual; with ``headwise build``, ``--set profile.period=256``.

        >>> ProfileOptions(max_tokens=2048, period=256).repeats
        16
    """

    study = "profile"
    max_tokens: int = option(
        1024, "maximum number of tokens per text; longer texts are truncated", minimum=8, quick=128
    )
    repeats: int = option(16, "number of sequences of repeated random tokens", minimum=2, quick=8)
    period: int = option(128, "number of random tokens in such a sequence before they repeat", minimum=3)
    repeat: str = option(
        "vocabulary",
        'which tokens are drawn for them: "vocabulary", any ordinary token; "texts", those that occur in the texts, for a '
        "model that has learned only part of its vocabulary",
        choices=("vocabulary", "texts"),
    )
    batch_tokens: int | None = batch_tokens_option(4_096)  # tokens per batch, padding included; None: by the device
    shard: int | None = shard_option(10)  # examples between saves; None: by the device
    seed: int = option(0, "seed of the random tokens")


def _cost(card: ModelCard, inputs: PlannedInputs) -> StudyCost:
    options = ProfileOptions()
    limit = min(options.max_tokens, card.max_positions or options.max_tokens)
    texts = [min(limit, tokens) for tokens in inputs.passage_tokens] + [
        min(limit, 2 * options.period)
    ] * options.repeats
    return StudyCost(
        len(texts), sum(texts), forward_flops(card, texts), min(4096, sum(texts)),
        card.layers * card.heads * 11 * (len(texts) + 4), slowdown=2.15, unit="texts", shard=10,
    )  # fmt: skip


PROFILE = DatasetSpec(
    name="profile",
    question="Where does each head attend?",
    method=Method(
        "While the model reads the passages, statistics of every head's attention weights are summed up "
        "inside the layer call, block by block, and the weights are discarded. Induction and "
        "duplicate-token scores come from sequences of random tokens that repeat. Next to each value is that "
        "of a head with uniform attention over the same keys; confidence intervals are over "
        "texts."
    ),
    variables=(
        Variable(
            "value",
            (STATISTIC, LAYER, HEAD),
            "the statistic of the head, mean over examples; its unit is in the coordinate unit",
            dtype="float32",
        ),
        Variable("low", (STATISTIC, LAYER, HEAD), "lower end of the 95 % interval of that mean", dtype="float32"),
        Variable("high", (STATISTIC, LAYER, HEAD), "upper end of the 95 % interval of that mean", dtype="float32"),
        Variable(
            "uniform",
            (STATISTIC, LAYER, HEAD),
            "the statistic of a head with uniform attention over all keys that it can see; NaN where that makes "
            "no sense",
            dtype="float32",
        ),
        Variable(
            "per_example",
            (EXAMPLE, STATISTIC, LAYER, HEAD),
            "the statistic of the head in one example",
            dtype="float32",
        ),
        Variable("statistic", (STATISTIC,), dtype=TEXT, coordinate=True),
        Variable("label", (STATISTIC,), dtype=TEXT, coordinate=True),
        Variable("definition", (STATISTIC,), dtype=TEXT, coordinate=True),
        Variable("unit", (STATISTIC,), "unit of the statistic", dtype=TEXT, coordinate=True),
        Variable("example", (EXAMPLE,), dtype=TEXT, coordinate=True),
        Variable("register", (EXAMPLE,), dtype=TEXT, coordinate=True),
    ),
    examples="passages",
    figure="figure:figure",
    figure_options={
        "statistics": FigureOption(
            "Which statistics, comma-separated, in this order; all by default.", "induction,previous"
        ),
        "relative": FigureOption("Values minus those of a head with uniform attention."),
    },
    variants=(
        FigureVariant("value", "As measured"),
        FigureVariant("relative", "Against a uniform head", {"relative": True}),
    ),
    words="words:describe",
    renames={
        1: Renames(
            labels={
                "statistic": {"moved": "output_norm_ratio"},
                "label": {"Moved": "Output norm (relative)", "Itself": "Own token"},
            }
        )
    },
    head_sets="heads:head_sets",
    head_columns=(HeadColumn("value", low="low", high="high", baseline="uniform", baseline_name="a uniform head"),),
    default_columns=("profile.induction", "profile.previous", "profile.sink", "profile.entropy"),
)

SPEC = StudySpec(
    name="profile",
    package=__package__,
    version=2,
    options=ProfileOptions,
    produces=(PROFILE,),
    inputs=("passages",),
    cost=_cost,
)
