"""The spec of the study `relations`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headwise.core.dims import CATEGORY, DRAW, EXAMPLE, HEAD, LAYER, RANK, RELATION, TARGET, VOCABULARY
from headwise.core.errors import StudyError
from headwise.core.schema import TEXT
from headwise.studies.cost import PlannedInputs, StudyCost
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
    style_option,
)

if TYPE_CHECKING:
    from headwise.model.card import ModelCard


LARGE_VOCABULARY = 65_536  # tokens; a larger vocabulary gets a larger k
PUBLISHED = frozenset(
    "copying name-copying first-letter last-letter year-following country-capital country-language object-superclass "
    "product-company work-location antonym comparative superlative entity-pronoun past-tense compound homophone synonym "
    "english-french english-spanish".split()
)  # the twenty relations of Elhelo & Geva
SIGNS = ("score", "suppression")  # promoted targets, suppressed targets
K = {False: (10, 25), True: (1, 3)}  # copying or not -> k for a small and for a large vocabulary


@dataclass(frozen=True)
class RelationsOptions(StudyOptions):
    """Options of the studies `relations` and `salience`: what does each head compute, from its weights alone?

    Examples:
        The number of top-ranked tokens among which a target counts as found: as published, or as given.

        >>> RelationsOptions().k_of(copying=False, vocabulary=49152), RelationsOptions(k=5).k_of(False, 49152)
        (10, 5)
    """

    study = "relations"
    norms: str = option(
        "raw",
        '"raw": no norm is applied, as published; "folded": with the gains of the norms before and after the attention and of '
        "the final norm",
        choices=("raw", "folded"),
    )
    embedding: str = option(
        "effective",
        '"effective": heads after the first layer read the embedding after the first MLP; "raw": they read the embedding, as '
        "published for Llama-70B",
        choices=("effective", "raw"),
    )
    k: int | None = option(
        None,
        "number of top-ranked tokens among which a target counts as found; None: 10, or 25 for vocabularies "
        "over 65,536",
        minimum=1,
    )
    k_copying: int | None = option(None, "the same for copying relations; None: 1, or 3", minimum=1)
    threshold: float = option(0.15, "score above which a head belongs to a relation")
    shuffles: int = option(20, "number of permutations of the targets for the null", minimum=1, quick=5)
    salience: bool = option(True, "also build `salience`: the tokens that each head amplifies most")
    seed: int = option(0, "seed of the permutations")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.threshold < 1:
            raise StudyError(f"relations.threshold must be a share, from 0 to below 1, not {self.threshold}.")

    def k_of(self, copying: bool, vocabulary: int) -> int:
        """The number of top-ranked tokens among which a target counts as found."""
        chosen = self.k_copying if copying else self.k
        return min(chosen or K[copying][vocabulary > LARGE_VOCABULARY], vocabulary)


def _cost(card: ModelCard, inputs: PlannedInputs) -> StudyCost:
    relations, sources = 25, 3500  # packaged; distinct source tokens under the default tokenizer
    width = sum(layer.heads * layer.value_dim for layer in card.per_layer)
    return StudyCost(
        card.layers, 0, 2.0 * width * card.vocabulary_size * (card.hidden_size + sources), 1,
        card.layers * card.heads * relations * 12, slowdown=1.3, unit="layers", shard=1,
    )  # fmt: skip


SALIENCE = DatasetSpec(
    name="salience",
    question="Which tokens does each head amplify most?",
    method=Method(
        "The tokens whose value each head amplifies most, from its weights alone, and the tokens it maps them to."
    ),
    variables=(
        Variable(
            "strength",
            (LAYER, HEAD, RANK),
            "norm of what the head writes for the token over norm of what it reads",
            dtype="float32",
        ),
        Variable(
            "token",
            (LAYER, HEAD, RANK),
            "id of the token that the head amplifies most, at this rank; -1 where there is no such head",
            dtype="int32",
        ),
        Variable(
            "targets",
            (LAYER, HEAD, RANK, TARGET),
            "ids of the tokens that the head maps this token to, strongest first",
            dtype="int32",
        ),
        Variable("tokens", (LAYER, HEAD), "the first few of these tokens in words", dtype=TEXT),
        Variable("text", (VOCABULARY,), "text of the token id", dtype=TEXT),
        Variable("vocabulary", (VOCABULARY,), coordinate=True),
        Variable("rank", (RANK,), coordinate=True),
        Variable("target", (TARGET,), coordinate=True),
    ),
    attrs=("record", "title", "left_out"),
    examples="pairs",
    head_columns=(),
    read_with="headwise heads {atlas} --columns relations.best,salience.tokens",
    has_page=False,
)


def _score(sign: str, done: str, end: str) -> tuple[Variable, ...]:
    """How often a head does this to the targets of a relation, and what shuffled targets would give."""
    texts = {
        sign: f"share of the relation's pairs whose target is {done}, among the k {end} entries of what the head's weights "
        "make of the source",
        f"{sign}_null": f"mean {sign} with shuffled targets",
        f"{sign}_null_high": f"largest {sign} of all shuffles of the targets",
        f"{sign}_null_over": f"share of shuffles of the targets whose {sign} is above the threshold",
    }
    dims = (RELATION, LAYER, HEAD)
    return tuple(Variable(name, dims, text, dtype="float32", interval=name == sign) for name, text in texts.items())


def _score_column(sign: str, done: str, does: str, hits: str) -> HeadColumn:
    return HeadColumn(
        sign,
        baseline=f"{sign}_null",
        baseline_name="shuffled targets",
        label=f"{{}}, {done}",
        definition=f"share of pairs whose target is among the tokens the head {does} most",
        hits=hits,
        hits_of="relation_of",
    )


RELATIONS = DatasetSpec(
    name="relations",
    question="What does each head compute, from its weights alone?",
    method=Method(
        "No text is read. A head's weights map every token to the tokens it would write if it attended to it:"
        " embedding, value and output matrices, unembedding. A head's score for a relation is the share of "
        "its word pairs whose target is among the k highest-ranked tokens; suppression is the same with the sign "
        "reversed. Scores have Wilson intervals; permuted targets give the false-positive rate of the threshold, and the "
        "number of heads that they would classify.",
        "Elhelo and Geva, Inferring Functionality of Attention Heads from their Parameters",
        "https://arxiv.org/abs/2412.11965",
    ),
    variables=(
        *_score("score", "promoted", "largest"),
        *_score("suppression", "suppressed", "smallest"),
        Variable(
            "member",
            (CATEGORY, LAYER, HEAD),
            "whether the head promotes a relation of the category above the threshold: promotion only; "
            "categories, words and figures count member or member_suppression",
            dtype="bool",
        ),
        Variable(
            "member_suppression",
            (CATEGORY, LAYER, HEAD),
            "whether the head suppresses a relation of the category above the threshold: suppression only",
            dtype="bool",
        ),
        Variable(
            "member_beyond_null",
            (CATEGORY, LAYER, HEAD),
            "whether the head promotes or suppresses a relation of the category above the threshold and above "
            "each of its own shuffles: both signs, the stricter rule",
            dtype="bool",
        ),
        *(
            Variable(
                f"{sign}_false_positive",
                (RELATION,),
                f"share of shuffles of the targets whose {sign} is above the threshold, mean over all heads",
                dtype="float32",
            )
            for sign in SIGNS
        ),
        Variable(
            "null_heads",
            (DRAW,),
            "number of heads that shuffled targets classify (a score of either sign above the threshold), by shuffle",
            dtype="int64",
            unit="heads",
            required=False,
        ),
        Variable(
            "null_heads_published",
            (DRAW,),
            "the same by the twenty published relations alone",
            dtype="int64",
            unit="heads",
            required=False,
        ),
        Variable("pairs", (RELATION,), "pairs of the relation that the tokenizer left", dtype="int64", unit="pairs"),
        Variable(
            "given",
            (RELATION,),
            "pairs of the relation before the tokenizer left some out",
            dtype="int64",
            unit="pairs",
        ),
        Variable(
            "k",
            (RELATION,),
            "number of largest (or smallest) entries among which a target counts as found",
            dtype="int64",
            unit="tokens",
        ),
        Variable(
            "mapped",
            (EXAMPLE, LAYER, HEAD),
            "whether the head promotes the target of this pair among the k largest entries",
            dtype="bool",
        ),
        Variable(
            "suppressed",
            (EXAMPLE, LAYER, HEAD),
            "whether the head suppresses the target of this pair among the k smallest entries",
            dtype="bool",
        ),
        Variable(
            "categories",
            (LAYER, HEAD),
            "categories of the head by its weights: those where member or member_suppression holds; empty if none",
            dtype=TEXT,
        ),
        Variable(
            "best",
            (LAYER, HEAD),
            "relation of the head's best score by either sign; empty where that is not above the threshold",
            dtype=TEXT,
        ),
        Variable("best_score", (LAYER, HEAD), "the head's best score, by either sign", dtype="float32"),
        Variable("relation", (RELATION,), dtype=TEXT, coordinate=True),
        Variable("category_of", (RELATION,), "category of the relation", dtype=TEXT, coordinate=True),
        Variable("category", (CATEGORY,), dtype=TEXT, coordinate=True),
        Variable("example", (EXAMPLE,), dtype=TEXT, coordinate=True),
        Variable("source", (EXAMPLE,), "source word of the pair", dtype=TEXT, coordinate=True),
        Variable("target_word", (EXAMPLE,), "target word of the pair", dtype=TEXT, coordinate=True),
        Variable("relation_of", (EXAMPLE,), "relation of the pair", dtype=TEXT, coordinate=True),
        Variable("copied_score", None, "score of a head that only copies what it reads", required=False),
        Variable(
            "copied_suppression",
            None,
            "suppression of a head that only copies what it reads",
            required=False,
        ),
    ),
    attrs=("record", "title", "threshold", "shuffles", "kept"),
    examples="pairs",
    figure="figure:figure",
    figure_options={
        "kind": FigureOption(
            choices={
                "categories": "the categories of every head",
                "relations": "a map of each relation",
                "layers": "heads of each category by layer",
            },
            example="relations",
        ),
        "value": FigureOption(
            choices={
                "score": "how often the head promotes the target",
                "suppression": "how often it suppresses it",
            },
            example="suppression",
            needs={"kind": ("relations",)},
        ),
        "relations": FigureOption(
            "Which relations, comma-separated, in this order; all by default.",
            "copying",
            needs={"kind": ("relations",)},
        ),
        "beyond_null": FigureOption(
            "Only scores that are also above every shuffle of the relation's targets.",
            needs={"kind": ("categories", "layers")},
        ),
        "style": style_option("five panels without counts over them", needs={"kind": ("categories",)}),
    },
    variants=(
        FigureVariant("categories", "Categories", {"kind": "categories"}),
        FigureVariant("null", "Beyond shuffles only", {"beyond_null": True}),
        FigureVariant("relations", "Each relation", {"kind": "relations"}),
        FigureVariant("suppression", "Suppression", {"kind": "relations", "value": "suppression"}),
        FigureVariant("layers", "By layer", {"kind": "layers"}),
    ),
    words="words:describe",
    head_sets="heads:head_sets",
    head_facts=True,
    head_columns=(
        _score_column("score", "promoted", "promotes", "mapped"),
        _score_column("suppression", "suppressed", "suppresses", "suppressed"),
    ),
    default_columns=("relations.categories", "relations.best"),
)

SPEC = StudySpec(
    name="relations",
    package=__package__,
    version=1,
    options=RelationsOptions,
    produces=(SALIENCE, RELATIONS),
    inputs=("relations",),
    weights_only=True,
    cost=_cost,
)
