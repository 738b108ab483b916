"""The spec of the study `spectral`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headwise.core.dims import DETECTOR, EXAMPLE, FEATURE, FOLD, HEAD, LAYER, PART
from headwise.core.options import batch_tokens_option, shard_option
from headwise.core.schema import TEXT
from headwise.studies.cost import ANSWER_TOKENS, PROMPT_TOKENS, PlannedInputs, StudyCost, forward_flops
from headwise.studies.head_sets import StrongestHeads
from headwise.studies.spec import (
    Claim,
    DatasetSpec,
    FigureOption,
    FigureVariant,
    HeadColumn,
    Method,
    StudyOptions,
    StudySpec,
    Variable,
    option,
    style_option,
)

if TYPE_CHECKING:
    from headwise.model.card import ModelCard


@dataclass(frozen=True)
class SpectralOptions(StudyOptions):
    """Options of the studies `spectral` and `detection`: which heads' attention differs in wrong answers?

    Examples:
        >>> SpectralOptions(shuffles=20)  # refused at once, before anything is measured
        Traceback (most recent call last):
            ...
        headwise.core.errors.StudyError: spectral.shuffles must be at least 200, not 20; write --set spectral.shuffles=200.
        >>> SpectralOptions(k=25, shuffles=1000)
        SpectralOptions(k=25, batch_tokens=None, shard=None, shuffles=1000, seed=0)
    """

    study = "spectral"
    k: int | None = option(
        None, "eigenvalues per head for the detectors; None: the largest of 5, 10, 25, 50 and 100 that every text has"
    )
    batch_tokens: int | None = batch_tokens_option(4_096)  # tokens per batch, padding included; None: by the device
    shard: int | None = shard_option(64)  # examples between saves; None: by the device
    shuffles: int = option(500, "number of label permutations for the null", minimum=200, quick=200)
    seed: int = option(0, "random seed of permutations and folds")


def _cost(card: ModelCard, inputs: PlannedInputs) -> StudyCost:
    texts = [PROMPT_TOKENS + ANSWER_TOKENS] * inputs.questions
    features, eigenvalues = 12, 50  # per head: features over the whole text and over the answer; of each kind
    return StudyCost(
        len(texts), sum(texts), forward_flops(card, texts), min(4096, sum(texts)),
        card.layers * card.heads * features * (len(texts) + 12),
        fitting=10.0 * (inputs.questions / 500) ** 1.1 * card.layers * card.heads / 270, slowdown=1.4, unit="answers",
        stored_per_example=card.layers * (card.heads * (features + 2 * eigenvalues) + card.hidden_size),
    )  # fmt: skip


def _per_head(name: str, long_name: str, *, interval: bool = False, required: bool = True) -> Variable:
    dims = (PART, FEATURE, LAYER, HEAD)
    return Variable(name, dims, long_name, dtype="float32", interval=interval, required=required)


DETECTION = DatasetSpec(
    name="detection",
    question="How well can wrong answers be detected?",
    method=Method(
        "Detectors of wrong answers are fitted on the features of all heads together (principal components, "
        "then logistic regression) and evaluated on held-out folds; all choices are made inside the training "
        "folds. Log-probabilities and the length of the answer alone are in the same table as baselines, and so are "
        "detectors that see the question and nothing of the model; gains are counted from the strongest of these, and "
        "AUROCs within strata compare answers to similar questions only.",
        "Binkowski et al., Hallucination Detection in LLMs Using Spectral Features of Attention Maps",
        "https://arxiv.org/abs/2502.17598",
    ),
    variables=(
        Variable("auroc", (DETECTOR,), "AUROC of wrong against correct answers, mean over folds", interval=True),
        Variable("pooled", (DETECTOR,), "AUROC over the pooled out-of-fold scores of all answers"),
        Variable("fold_auroc", (DETECTOR, FOLD), "AUROC on each fold"),
        Variable("score", (DETECTOR, EXAMPLE), "out-of-fold score of the answer, larger is more likely wrong"),
        Variable("detector", (DETECTOR,), dtype=TEXT, coordinate=True),
        Variable(
            "kind",
            (DETECTOR,),
            "kind of detector: question, supervised, combined, with question or score",
            dtype=TEXT,
            coordinate=True,
        ),
        Variable("label", (DETECTOR,), dtype=TEXT, coordinate=True),
        Variable("wrong", (EXAMPLE,), "whether the answer is wrong", dtype="bool", coordinate=True),
        Variable("fold_of", (EXAMPLE,), "fold of the answer", coordinate=True),
        Variable(
            "example", (EXAMPLE,), "name of the question, as in `answers`", dtype=TEXT, coordinate=True, required=False
        ),
        Variable("probability", None, "out-of-fold probability that the answer is wrong", required=False),
        Variable("precision", None, "precision of calling an answer wrong, out of fold", required=False),
        Variable("recall", None, "recall of wrong answers, out of fold", required=False),
        Variable("brier", None, "Brier score of the probabilities, out of fold", required=False),
        Variable("auroc_within", None, "AUROC over pairs of answers of the same stratum of questions", required=False),
        Variable("gain", None, "AUROC minus that of the reference detector, paired", required=False),
        Variable("gain_p", None, "p-value of the gain (two-sided paired DeLong test)", required=False),
        Variable("gain_detectable", None, "smallest gain that would be found with 80 % power", required=False),
        Variable("by_k", None, "AUROC with a fixed number of eigenvalues per head", required=False),
        Variable("by_layer", None, "AUROC from one layer alone", required=False),
        Variable("by_size", None, "AUROC by number of training answers", required=False),
        Variable("transfer", None, "AUROC on a topic when fitted on one topic, or on all others", required=False),
        Variable("choice", None, "what is chosen inside the training folds: k, layer, or nothing", required=False),
        Variable("chosen", None, "choice of each fold", required=False),
        Variable(
            "paper",
            None,
            "AUROC by the published protocol, which chooses on the test set and is optimistic",
            required=False,
        ),
        Variable("paper_choice", None, "what the published protocol chose", required=False),
    ),
    attrs=("title", "reference"),
    examples="answers",
    figure="detection_figure:figure",
    variants=(FigureVariant("all", "Detectors"),),
    words="detection_words:describe",
    claims=(
        Claim(
            "heads add to what the question alone tells about errors", "gain", "AUROC", {DETECTOR: "Question + heads"}
        ),
    ),
    on_own_answers=True,
    readable_since=1,
)

SPECTRAL = DatasetSpec(
    name="spectral",
    question="Which heads’ attention differs when the answer is wrong?",
    method=Method(
        "The model answers each question greedily; a stated matching rule labels the answer correct or "
        "wrong. A head's attention map, read as a graph, has a Laplacian whose eigenvalues are the "
        "attention that each token receives (mean over the queries that can attend to it) minus its "
        "attention to itself. Features of wrong and correct answers are compared per head with a two-sided "
        "Mann-Whitney U test; q-values are Benjamini-Hochberg over the heads of one map, and the same tests "
        "on permuted labels give the null. The question alone says much about its answer, so the tests are repeated "
        "within strata of similar questions (van Elteren's test, labels permuted within strata). Only column sums "
        "and the diagonal are needed, so no map is stored.",
        "Binkowski et al., Hallucination Detection in LLMs Using Spectral Features of Attention Maps",
        "https://arxiv.org/abs/2502.17598",
    ),
    variables=(
        _per_head("p", "p-value (two-sided Mann-Whitney U) of the feature, wrong against correct answers"),
        _per_head("q", "q-value (Benjamini-Hochberg over the map) of the feature, wrong against correct answers"),
        _per_head("effect", "AUROC of the single feature: above 0.5 it is larger in wrong answers", interval=True),
        _per_head(
            "p_matched", "p-value (van Elteren) with wrong answers compared with correct ones of the same length"
        ),
        _per_head("q_matched", "q-value with wrong answers compared with correct ones of the same length"),
        _per_head("p_within", "p-value (van Elteren) within strata of similar questions", required=False),
        _per_head(
            "q_within", "q-value (Benjamini-Hochberg over the map) within strata of similar questions", required=False
        ),
        _per_head(
            "effect_within",
            "AUROC of the single feature within strata of similar questions",
            interval=True,
            required=False,
        ),
        _per_head(
            "p_strict",
            "p-value (van Elteren) within the stricter strata, whose answers have similar lengths as well",
            required=False,
        ),
        _per_head(
            "q_strict", "q-value within the stricter strata, whose answers have similar lengths as well", required=False
        ),
        Variable("share", (PART, FEATURE), "share of heads with p < 0.05"),
        Variable("share_matched", (PART, FEATURE), "share of heads with p < 0.05 among answers of the same length"),
        Variable("null_mean", (PART, FEATURE), "share of heads with p < 0.05 with permuted labels, mean"),
        Variable("null_high", (PART, FEATURE), "share of heads with p < 0.05 with permuted labels, 95th percentile"),
        Variable("null_p", (PART, FEATURE), "permutation p-value of the share of heads with p < 0.05"),
        Variable("share_within", (PART, FEATURE), "share of heads with p < 0.05 within strata", required=False),
        Variable(
            "null_mean_within",
            (PART, FEATURE),
            "share of heads with p < 0.05 with labels permuted within strata, mean",
            required=False,
        ),
        Variable(
            "null_high_within",
            (PART, FEATURE),
            "share of heads with p < 0.05 with labels permuted within strata, 95th percentile",
            required=False,
        ),
        Variable(
            "null_p_within",
            (PART, FEATURE),
            "permutation p-value of the share of heads with p < 0.05 within strata",
            required=False,
        ),
        Variable(
            "null_p_strict",
            (PART, FEATURE),
            "permutation p-value of the share of heads with p < 0.05 within the stricter strata",
            required=False,
        ),
        Variable(
            "detectable",
            (PART, FEATURE),
            "smallest AUROC of one head that would be found at 80 % power (Bonferroni over the heads)",
            required=False,
        ),
        Variable(
            "detectable_within",
            (PART, FEATURE),
            "smallest AUROC of one head within strata that would be found at 80 % power (Bonferroni over the heads)",
            required=False,
        ),
        Variable(
            "per_example",
            (EXAMPLE, PART, FEATURE, LAYER, HEAD),
            "the feature of the head in one answer",
            dtype="float32",
        ),
        Variable("wrong", (EXAMPLE,), "whether the answer is wrong", dtype="bool"),
        Variable("answer_tokens", (EXAMPLE,), "length of the answer", unit="tokens"),
        Variable("topic", (EXAMPLE,), "topic of the question", dtype=TEXT),
        Variable("stratum", (EXAMPLE,), "stratum of similar questions", dtype="int64", required=False),
        Variable("stratum_strict", (EXAMPLE,), "stricter stratum", dtype="int64", required=False),
        Variable("part", (PART,), dtype=TEXT, coordinate=True),
        Variable("feature", (FEATURE,), dtype=TEXT, coordinate=True),
        Variable("label", (FEATURE,), dtype=TEXT, coordinate=True),
        Variable("definition", (FEATURE,), dtype=TEXT, coordinate=True),
        Variable("example", (EXAMPLE,), dtype=TEXT, coordinate=True),
        Variable(
            "p_cauchy", None, "p-value of ten tests, one per eigenvalue rank, by the Cauchy combination", required=False
        ),
        Variable(
            "p_min",
            None,
            "p-value of ten tests, one per eigenvalue rank: the smallest, Šidák-corrected",
            required=False,
        ),
    ),
    attrs=("record", "title", "counts"),
    examples="answers",
    figure="figure:figure",
    figure_options={
        "features": FigureOption("Features, comma-separated, in this order; all if omitted.", "laplacian,entropy"),
        "part": FigureOption("whole: prompt and answer; answer: the answer alone.", "answer"),
        "value": FigureOption(
            "p, q, effect (AUROC of the feature alone), or all of these three; p_cauchy: p-values of the single eigenvalues, "
            "combined by the Cauchy method; p_min: the smallest of them, corrected for their number.",
            "all",
        ),
        "within": FigureOption(
            "Compare answers to similar questions only: within strata (topic x difficulty where known)."
        ),
        "matched": FigureOption("Compare answers of exactly the same length only."),
        "scale": FigureOption(
            "Scale of p- and q-values: linear or log.",
            "log",
            needs={"value": ("p", "q", "all", "p_cauchy", "p_min")},
            choices={"linear": "as it is", "log": "logarithmic"},
        ),
        "cap": FigureOption(
            "Upper end of the colour scale of p- and q-values.",
            "0.5",
            needs={"value": ("p", "q", "all", "p_cauchy", "p_min")},
        ),
        "axes": FigureOption("Names of the horizontal and the vertical axis.", "Head,Layer"),
        "style": style_option("two maps with one colour bar, without counts over them"),
    },
    variants=(
        FigureVariant("p", "p-value"),
        FigureVariant("log", "p, log scale", {"scale": "log"}),
        FigureVariant("effect", "Effect size", {"value": "effect"}),
        FigureVariant("q", "q-value", {"value": "q"}),
        FigureVariant("within", "Similar questions", {"within": True}),
        FigureVariant("matched", "Same length", {"matched": True}),
        FigureVariant("answer", "Answer tokens only", {"part": "answer"}),
        FigureVariant("features", "All features", {"features": None}),
    ),
    words="words:describe",
    head_sets=StrongestHeads(
        "spectral",
        "the strongest tenth by |AUROC - 0.5| of wrong against correct answers, with q < 0.05",
        ("effect", "q"),
        lambda effect, q: q < 0.05,
        strength=lambda effect, q: abs(effect - 0.5),
        per=FEATURE,
        at={PART: "whole"},
    ),
    head_columns=(
        HeadColumn(
            "effect",
            p="p",
            q="q",
            q_matched="q_matched",
            within="effect_within",
            q_within="q_within",
            level=0.5,
            baseline_name="no difference",
            definition="AUROC of this feature alone: above 0.5 it is larger in wrong answers",
        ),
    ),
    default_columns=(
        "spectral.whole.laplacian.effect",
        "spectral.whole.laplacian.q",
        "spectral.whole.laplacian.q_within",
        "spectral.whole.attention_score.q",
        "spectral.whole.attention_score.q_within",
    ),
    on_own_answers=True,
    # 1: the ten largest eigenvalues for the answer's tokens as well; 1 and 2: no strata, random pairs of equal length
    readable_since=1,
)

SPEC = StudySpec(
    name="spectral",
    package=__package__,
    version=3,
    options=SpectralOptions,
    produces=(DETECTION, SPECTRAL),
    depends_on=("answers",),
    shares_pass="answers",
    cost=_cost,
)
