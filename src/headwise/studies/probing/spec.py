"""The spec of the study `probing`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headwise.core.dims import DETECTOR, EXAMPLE, HEAD, LAYER, SITE, TOKEN
from headwise.core.errors import StudyError, did_you_mean
from headwise.core.options import batch_tokens_option, shard_option
from headwise.core.schema import TEXT
from headwise.corpora.endpoint import Endpoint
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


SITES = ("residual", "attention_out", "mlp_in", "mlp_out")


@dataclass(frozen=True)
class ProbingOptions(StudyOptions):
    """Options of the study `probing`: at which layer and token can a probe detect that the answer is wrong?

    Examples:
        >>> ProbingOptions(sites=("residual", "mlp_out"), shuffles=200).sites
        ('residual', 'mlp_out')
        >>> ProbingOptions(sites=("residuals",))  # doctest: +ELLIPSIS
        Traceback (most recent call last):
            ...
        headwise.core.errors.StudyError: there is no site 'residuals' to probe. Did you mean 'residual'? ...
    """

    study = "probing"
    sites: tuple[str, ...] | None = option(
        None,
        "hook points to probe: mlp_in (as published), mlp_out, attention_out, residual; None: mlp_in, residual",
        quick=("mlp_in",),
    )
    spans: str = option(
        "blind",
        'how exact answers are found: "blind" (without the label) or "published" (with it)',
        choices=("blind", "published"),
    )
    extractor: Endpoint | None = option(None, "model that extracts exact answers for the published spans")
    folds: int = option(5, "number of cross-validation folds", minimum=2)
    shuffles: int = option(
        100, "number of label permutations for the null; no q-value is below 1 / (1 + shuffles)", minimum=40, quick=40
    )
    paper: bool = option(True, "also run the paper's protocol, at the first site", quick=False)
    p_true: bool = option(True, "also ask the model whether its answer is true", quick=False)
    batch_tokens: int | None = batch_tokens_option(2_048)  # tokens per batch, padding included; None: by the device
    shard: int | None = shard_option(64)  # examples between saves; None: by the device
    seed: int = option(0, "random seed of folds and label permutations")

    def __post_init__(self) -> None:
        super().__post_init__()
        for site in self.sites or ():
            if site not in SITES:
                raise StudyError(f"there is no site {site!r} to probe. {did_you_mean(site, SITES)}")
        if self.sites is not None and not self.sites:
            raise StudyError(f"probing needs at least one site of {', '.join(SITES)}")


def _cost(card: ModelCard, inputs: PlannedInputs) -> StudyCost:
    positions, sites, self_judgement = 15, 2, 30  # tokens per answer; hook points; tokens of the question "is it true?"
    texts = [PROMPT_TOKENS + ANSWER_TOKENS + self_judgement] * inputs.questions
    cells = card.layers * positions * sites
    activations = (cells + 4 * card.layers) * card.hidden_size + card.layers * card.heads * card.value_dim
    return StudyCost(
        len(texts), sum(texts), forward_flops(card, texts), min(2048, sum(texts)),
        cells * 8 + card.layers * card.heads * 6,
        fitting=22.0 * (inputs.questions / 500) * (cells * card.hidden_size) / (450 * sites * 576), slowdown=1.1,
        unit="answers", stored_per_example=activations // 2,  # half precision
    )  # fmt: skip


def _against(name: str, dims: tuple[str, ...]) -> tuple[Variable, ...]:
    """The variables that say how a map compares with permuted labels."""
    best = dims[:-2] if SITE in dims else ()
    texts = {
        "p": f"p-value of {name} against labels permuted within strata",
        "q": f"q-value of {name} (Benjamini-Hochberg over the map, the permutation as the unit)",
        "null_high": f"95th percentile of {name} with labels permuted within strata",
    }
    of_best = {
        "best_high": f"95th percentile of the largest {name} over maps with labels permuted within strata",
        "best_p": f"share of maps with permuted labels whose largest {name} is as large as this map's",
    }
    cells = [Variable(f"{name}_{end}", dims, text, dtype="float32", required=False) for end, text in texts.items()]
    return *cells, *(Variable(f"{name}_{end}", best, text, required=False) for end, text in of_best.items())


PROBING = DatasetSpec(
    name="probing",
    question="At which layer and token can a probe detect that the answer is wrong?",
    method=Method(
        "The model answers each question greedily; a stated matching rule labels the answer correct or "
        "wrong. At every layer and at fifteen tokens around the question's end and the exact answer, a "
        "logistic regression on the activation predicts that the answer is wrong; each cell is its AUROC on"
        " held-out folds. The exact answer is found by the same rule whatever the label. The best cell is "
        "evaluated on folds that were not used to select it.",
        "Orgad et al., LLMs Know More Than They Show",
        "https://arxiv.org/abs/2410.02707",
    ),
    variables=(
        Variable(
            "auroc",
            (SITE, LAYER, TOKEN),
            "AUROC of a probe at this site, layer and token, wrong against correct answers, cross-validated",
            dtype="float32",
        ),
        Variable("low", (SITE, LAYER, TOKEN), "lower end of the 95 % interval of auroc", dtype="float32"),
        Variable("high", (SITE, LAYER, TOKEN), "upper end of the 95 % interval of auroc", dtype="float32"),
        Variable("p", (SITE, LAYER, TOKEN), "p-value of auroc against permuted labels", dtype="float32"),
        Variable("q", (SITE, LAYER, TOKEN), "q-value of auroc (Benjamini-Hochberg)", dtype="float32"),
        Variable(
            "null_high",
            (SITE, LAYER, TOKEN),
            "95th percentile of this probe's AUROC with permuted labels",
            dtype="float32",
        ),
        Variable("chosen", (SITE, LAYER, TOKEN), "number of folds in which this cell was selected"),
        Variable(
            "within",
            (SITE, LAYER, TOKEN),
            "AUROC within strata (questions that are alike) of a probe at this cell, fitted on other strata",
            dtype="float32",
            interval=True,
            required=False,
        ),
        *_against("within", (SITE, LAYER, TOKEN)),
        Variable(
            "nested_within",
            (SITE,),
            "AUROC within strata of the best cell, selected on other strata than it is evaluated on",
            dtype="float32",
            interval=True,
            required=False,
        ),
        Variable(
            "best_high",
            (SITE,),
            "95th percentile of the best cell's AUROC over maps with permuted labels",
            dtype="float32",
        ),
        Variable(
            "best_p",
            (SITE,),
            "share of maps with permuted labels whose best cell is as good as this map's",
            dtype="float32",
        ),
        Variable(
            "nested",
            (SITE,),
            "AUROC of the best cell, selected on other folds than it is evaluated on",
            dtype="float32",
            interval=True,
        ),
        Variable("frame_first", (SITE,), "first of the framed layers; -1: none"),
        Variable("frame_last", (SITE,), "last of the framed layers; -1: none"),
        Variable(
            "head_auroc",
            (LAYER, HEAD),
            "AUROC of a probe on this head's output, wrong against correct answers, cross-validated",
            dtype="float32",
        ),
        Variable("head_low", (LAYER, HEAD), "lower end of the 95 % interval of head_auroc", dtype="float32"),
        Variable("head_high", (LAYER, HEAD), "upper end of the 95 % interval of head_auroc", dtype="float32"),
        Variable("head_p", (LAYER, HEAD), "p-value of head_auroc against permuted labels", dtype="float32"),
        Variable("head_q", (LAYER, HEAD), "q-value of head_auroc (Benjamini-Hochberg over heads)", dtype="float32"),
        Variable(
            "head_null_high",
            (LAYER, HEAD),
            "95th percentile of the AUROC of this head's probe with permuted labels",
            dtype="float32",
        ),
        Variable(
            "head_within",
            (LAYER, HEAD),
            "AUROC within strata (questions that are alike) of a probe on this head's output, fitted on other strata",
            dtype="float32",
            interval=True,
            required=False,
        ),
        *_against("head_within", (LAYER, HEAD)),
        Variable("head_best_high", (), "95th percentile of the best head's AUROC over maps with permuted labels"),
        Variable("head_best_p", (), "share of maps with permuted labels whose best head is as good as this map's"),
        Variable(
            "published",
            (LAYER, TOKEN),
            "AUROC of the first site with published spans; NaN at tokens without a span",
            dtype="float32",
        ),
        Variable(
            "received", (LAYER, TOKEN), "attention from later tokens, mean over heads and examples", dtype="float32"
        ),
        Variable("in_prompt", (TOKEN,), "number of examples in which this token is in the prompt"),
        Variable(
            "moved", (TOKEN,), "number of examples without such a token, where the nearest end of the text was taken"
        ),
        Variable(
            "auroc_exact",
            (SITE, LAYER, TOKEN),
            "the same AUROC, of the answers that have an exact answer",
            dtype="float32",
            required=False,
        ),
        Variable("exact", (EXAMPLE,), "text of the exact answer; empty where none was found", dtype=TEXT),
        Variable(
            "has_exact",
            (EXAMPLE,),
            "whether an exact answer was found; else the last token was read in its place",
            dtype="bool",
            required=False,
        ),
        Variable(
            "stratum",
            (EXAMPLE,),
            "stratum of the question, among which answers are compared",
            dtype="int64",
            required=False,
        ),
        Variable("topic_of", (EXAMPLE,), "topic of the question", dtype=TEXT),
        Variable("p_true", (EXAMPLE,), "probability the model assigns to its answer being true", dtype="float32"),
        Variable("table_auroc", (DETECTOR,), "AUROC of the detector", dtype="float32"),
        Variable("table_low", (DETECTOR,), "lower end of the 95 % interval of table_auroc", dtype="float32"),
        Variable("table_high", (DETECTOR,), "upper end of the 95 % interval of table_auroc", dtype="float32"),
        Variable(
            "table_exact",
            (DETECTOR,),
            "AUROC of the detector on answers that have an exact answer",
            dtype="float32",
            interval=True,
            required=False,
        ),
        Variable(
            "table_within",
            (DETECTOR,),
            "AUROC of the detector within strata (questions that are alike)",
            dtype="float32",
            interval=True,
            required=False,
        ),
        Variable(
            "table_gain",
            (DETECTOR,),
            "AUROC minus that of the strongest question-only detector, mean over folds, paired",
            dtype="float32",
            interval=True,
            required=False,
        ),
        Variable(
            "table_gain_p", (DETECTOR,), "p-value (DeLong, paired) of table_gain", dtype="float32", required=False
        ),
        Variable(
            "table_over_logprob",
            (DETECTOR,),
            "AUROC minus that of the strongest log-probability, mean over folds, paired",
            dtype="float32",
            interval=True,
            required=False,
        ),
        Variable(
            "table_over_logprob_p",
            (DETECTOR,),
            "p-value (DeLong, paired) of table_over_logprob",
            dtype="float32",
            required=False,
        ),
        Variable("wrong", (EXAMPLE,), "whether the answer is wrong", dtype="bool"),
        Variable("fold_of", (EXAMPLE,), "fold of the answer", dtype="int64"),
        Variable(
            "exact_first",
            (EXAMPLE,),
            "index of the exact answer's first token; of the last token where none was found",
            dtype="int64",
        ),
        Variable(
            "exact_last",
            (EXAMPLE,),
            "index of the exact answer's last token; of the last token where none was found",
            dtype="int64",
        ),
        Variable("answer_tokens", (EXAMPLE,), "length of the answer", dtype="int64", unit="tokens"),
        Variable("site", (SITE,), dtype=TEXT, coordinate=True),
        Variable("token", (TOKEN,), dtype=TEXT, coordinate=True),
        Variable("example", (EXAMPLE,), dtype=TEXT, coordinate=True),
        Variable("detector", (DETECTOR,), dtype=TEXT, coordinate=True),
        Variable("kind", (DETECTOR,), "kind of detector", dtype=TEXT, coordinate=True),
        Variable("paper", None, "AUROC by the paper's protocol: one 80/20 split, published spans", required=False),
        Variable("transfer", None, "AUROC on a group of topics of the probe fitted on another", required=False),
        Variable(
            "transfer_gain", None, "transfer minus the AUROC of the log-probability on the tested group", required=False
        ),
        Variable("transfer_logprob", None, "AUROC of the log-probability on the tested group", required=False),
        Variable("transfer_size", None, "answers of the group", required=False, unit="answers"),
        Variable("group", None, "group of topics of the question", required=False),
    ),
    attrs=("record", "title", "counts", "leak", "spans"),
    examples="answers",
    figure="figure:figure",
    figure_options={
        "kind": FigureOption(
            choices={
                "tokens": "layer x token",
                "within": "the same, also comparing only answers to similar questions",
                "heads": "layer x head",
                "transfer": "from one topic to another",
                "table": "probes and baselines",
            },
            example="heads",
        ),
        "site": FigureOption(
            "Hook point of the probe, of those measured; the first by default.",
            "residual",
            needs={"kind": ("tokens", "within", "transfer")},
        ),
        "positions": FigureOption(
            "Token positions to draw, comma-separated; all by default.",
            "exact_answer_first,exact_answer_last",
            needs={"kind": ("tokens", "within")},
        ),
        "layers": FigureOption(
            "Layers to outline with a box, such as 10-20; by default those within 0.02 of the best.",
            "10-20",
            needs={"kind": ("tokens",)},
        ),
        "frame": FigureOption(
            "Tokens to outline with a box, comma-separated; by default those of the exact answer.",
            "exact_answer_first,exact_answer_last",
            needs={"kind": ("tokens",)},
        ),
        "style": style_option("one map, without the map of attention, ring and pointer", needs={"kind": ("tokens",)}),
    },
    variants=(
        FigureVariant("tokens", "Layers and tokens", {"kind": "tokens"}),
        FigureVariant("within", "Similar questions", {"kind": "within"}),
        FigureVariant("heads", "Heads", {"kind": "heads"}),
        FigureVariant("transfer", "Other topics", {"kind": "transfer"}),
        FigureVariant("table", "Probes and baselines", {"kind": "table"}),
    ),
    words="words:describe",
    head_sets=StrongestHeads(
        "probing",
        "the best tenth by AUROC of a probe on the head's output, with q < 0.05",
        ("head_auroc", "head_q"),
        lambda auroc, q: q < 0.05,
        name="head_auroc",
        label="Probe on a head",
    ),
    head_columns=(
        HeadColumn(
            "head_auroc",
            low="head_low",
            high="head_high",
            p="head_p",
            q="head_q",
            level=0.5,
            baseline_name="chance",
            label="Probe on its output",
            definition="AUROC of wrong against correct answers, from this head's output",
        ),
        HeadColumn(
            "head_within",
            p="head_within_p",
            q="head_within_q",
            level=0.5,
            baseline_name="chance",
            label="Probe on its output, within strata",
            definition="AUROC of wrong against correct answers, from this head's output, comparing only answers to questions "
            "that are alike (such as topic x difficulty)",
            controlled=True,
        ),
    ),
    default_columns=("probing.head_auroc",),
    claims=tuple(
        Claim(
            f"a probe on {where} tells more about errors than the question alone",
            "table_gain",
            "AUROC",
            {DETECTOR: row},
        )
        for row, where in (("Probe, best cell", "one layer and token"), ("Probe, best head", "the output of one head"))
    ),
    on_own_answers=True,
    readable_since=1,
)

SPEC = StudySpec(
    name="probing",
    package=__package__,
    version=2,
    options=ProbingOptions,
    produces=(PROBING,),
    depends_on=("answers",),
    shares_pass="answers",
    cost=_cost,
)
