"""The spec of the study `causal`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headwise.core.dims import ABLATION, HEAD, LAYER, TOKEN_CLASS
from headwise.core.schema import TEXT
from headwise.studies.cost import PlannedInputs, StudyCost, forward_flops
from headwise.studies.spec import (
    DatasetSpec,
    FigureOption,
    FigureVariant,
    HeadColumn,
    Method,
    StudyOptions,
    StudySpec,
    Variable,
    option,
)

if TYPE_CHECKING:
    from headwise.model.card import ModelCard

ABLATIONS = ("mean", "resample")
QUESTION_TOKENS = 22  # of a packaged question with its answer, without a chat template
MAP = (ABLATION, TOKEN_CLASS, LAYER, HEAD)


@dataclass(frozen=True)
class CausalOptions(StudyOptions):
    """Options of the study `causal`: does the model need this head?

    Examples:
        Every head ablated exactly; with ``headwise build``, ``--set causal.exact=all``.

        >>> CausalOptions(exact="all").prompts
        20
    """

    study = "causal"
    prompts: int = option(20, "number of prompts on which effects are measured", minimum=4)
    tokens: int = option(64, "tokens per prompt", minimum=8)
    ranking: int = option(8, "further prompts, on which the heads to ablate exactly are chosen", minimum=2)
    questions: int = option(16, "questions whose gold answers are scored; 0: none", minimum=0)
    draws: int = option(1, "sampled labels per token, for the second-order part of the attribution", minimum=1)
    exact: str = option(
        "tenth",
        "tenth: ablate the tenth with the largest attribution and a random tenth; all: every head",
        choices=("tenth", "all"),
    )
    unit: str = option(
        "head", "head: ablate single heads; kv_group: all heads that share keys as one", choices=("head", "kv_group")
    )
    batch_tokens: int = option(512, "tokens per batch, padding included", minimum=1)
    shard: int = option(8, "number of prompts between saves; a killed build loses at most these", minimum=1)
    seed: int = option(0, "seed of the random tenth, of the texts that are exchanged and of the sampled labels")


def _cost(card: ModelCard, inputs: PlannedInputs) -> StudyCost:
    """Whole passes for the attribution, passes from the ablated layer on (half of the layers) for exact ablation."""
    options = CausalOptions()
    heads = sum(layer.heads for layer in card.per_layer)
    exact = 2 * len(ABLATIONS) * max(1, round(heads / 10))
    measured, ranked = options.prompts, options.ranking
    passes = measured * (4 + 12 * 1.2 + 0.6 * exact) + ranked * 6
    asked = min(options.questions, inputs.questions) * (4 + 2 * 1.2 + 0.6 * exact)
    texts = [options.tokens] * round(passes) + [QUESTION_TOKENS] * round(asked)
    unembedding = 2.0 * card.vocabulary_size * card.hidden_size * sum(texts)
    return StudyCost(
        measured + options.questions, sum(texts), forward_flops(card, texts) + unembedding, options.batch_tokens,
        card.layers * card.heads * 2 * 8 * 7, slowdown=1.1, unit="prompts", shard=options.shard,
        stored_per_example=2 * card.layers * card.heads * 2 * 7,
    )  # fmt: skip


CAUSAL = DatasetSpec(
    name="causal",
    question="Does the model need this head?",
    method=Method(
        "The output of one head is replaced by its mean over texts, or by its output on another text, and the rise of the "
        "next-token loss is measured, by class of the predicted token and on gold answers to questions. The tenth of the "
        "heads with the largest attribution and a random tenth are ablated exactly; the others have a second-order "
        "attribution (gradient, and Fisher information from labels that the model draws), corrected by a curve that is "
        "fitted on the heads that were ablated exactly. Intervals are over texts and, for heads that were not ablated, "
        "include the error of that prediction.",
        "after attribution patching (Syed et al.) and mean and resample ablation (Chan et al., causal scrubbing)",
        "https://arxiv.org/abs/2310.10348",
    ),
    variables=(
        Variable(
            "effect", MAP, "rise of the loss on tokens of this class without the head", dtype="float32",
            unit="nats per token", interval=True,
        ),
        Variable("p", MAP, "p-value of that rise, Student's t over texts, two-sided", dtype="float32"),
        Variable("q", MAP, "the same after Benjamini and Hochberg, over the heads of the map", dtype="float32"),
        Variable(
            "attribution", MAP, "second-order estimate of the rise, before the correction", dtype="float32",
            unit="nats per token",
        ),
        Variable(
            "first_order", MAP, "first-order part of the attribution: gradient times change", dtype="float32",
            unit="nats per token",
        ),
        Variable(
            "kl", (ABLATION, LAYER, HEAD), "divergence KL(unchanged || without the head) of the next-token distributions",
            dtype="float32", unit="nats per token", interval=True,
        ),
        Variable(
            "kl_attribution", (ABLATION, LAYER, HEAD), "second-order estimate of that divergence, before the correction",
            dtype="float32", unit="nats per token",
        ),
        Variable(
            "checked", (LAYER, HEAD),
            "how the head was chosen for exact ablation: top, random, all; empty: its numbers are corrected attributions",
            dtype=TEXT,
        ),
        Variable(
            "rank", (LAYER, HEAD), "rank of the head in its layer by effect (mean ablation, all tokens); 1 is needed most",
            dtype="float32",
        ),
        Variable("norm", (LAYER, HEAD), "mean norm of what the head adds to the residual stream", dtype="float32"),
        Variable(
            "matched", (LAYER, HEAD), "mean effect of the heads of the layer with the most similar norm",
            dtype="float32", unit="nats per token",
        ),
        Variable(
            "excess", (LAYER, HEAD), "effect of the head minus that of these matched heads", dtype="float32",
            unit="nats per token", interval=True,
        ),
        Variable(
            "agreement", (ABLATION, TOKEN_CLASS), "rank correlation of attribution and exact effect, over these heads",
            dtype="float32",
        ),
        Variable(
            "agreement_random", (ABLATION, TOKEN_CLASS), "the same over the random heads alone", dtype="float32"
        ),
        Variable(
            "agreement_first_order", (ABLATION, TOKEN_CLASS), "the same for the first-order part alone, over the random heads",
            dtype="float32",
        ),
        Variable(
            "concordance", (ABLATION, TOKEN_CLASS),
            "share of pairs of such heads of one layer that attribution orders as exact ablation does; chance is half",
            dtype="float32",
        ),
        Variable("slope", (ABLATION, TOKEN_CLASS), "exact effect per attribution where that is small", dtype="float32"),
        Variable(
            "saturation", (ABLATION, TOKEN_CLASS),
            "attribution at which exact effects have levelled off to half of that; NaN: they do not", dtype="float32",
            unit="nats per token", required=False,
        ),
        Variable(
            "error", (ABLATION, TOKEN_CLASS),
            "what the correction misses of heads that it was not fitted on, in standard deviations of exact effects",
            dtype="float32",
        ),
        Variable("tokens", (TOKEN_CLASS,), "number of predicted tokens", dtype="float32", unit="tokens"),
        Variable("loss", (TOKEN_CLASS,), "loss of the unchanged model", dtype="float32", unit="nats per token"),
        Variable("ablation", (ABLATION,), dtype=TEXT, coordinate=True),
        Variable("token_class", (TOKEN_CLASS,), dtype=TEXT, coordinate=True),
        Variable("label", (TOKEN_CLASS,), dtype=TEXT, coordinate=True),
        Variable("definition", (TOKEN_CLASS,), dtype=TEXT, coordinate=True),
    ),
    attrs=("record", "title", "prompts", "prompt_tokens", "questions", "unit"),
    examples="prompts",
    figure="figure:figure",
    figure_options={
        "ablation": FigureOption("mean: the head's mean output is put in; resample: its output on another text.", "resample"),
    },
    variants=(
        FigureVariant("mean", "Mean ablation"),
        FigureVariant("resample", "Resample ablation", {"ablation": "resample"}),
    ),
    words="words:describe",
    head_sets="heads:head_sets",
    about_heads="words:about_heads",
    head_columns=(
        HeadColumn(
            "effect", low="effect_low", high="effect_high", p="p", q="q", level=0.0, baseline_name="no effect",
            label="Loss without it, {}", only={ABLATION: "mean"},
        ),
        HeadColumn("rank", label="Causal rank in its layer"),
        HeadColumn(
            "excess", low="excess_low", high="excess_high", level=0.0, baseline_name="heads of its layer that write as much",
            label="Needed more than matched heads",
        ),
        HeadColumn("kl", low="kl_low", high="kl_high", label="KL without it", only={ABLATION: "mean"}),
    ),
    default_columns=("causal.mean.all.effect", "causal.rank"),
    readable_since=1,  # heads that were not ablated then have attributions times a constant, far too large in early layers
)  # fmt: skip

SPEC = StudySpec(
    name="causal",
    package=__package__,
    version=2,
    options=CausalOptions,
    produces=(CAUSAL,),
    inputs=("passages", "questions"),
    opt_in=True,
    cost=_cost,
)
