"""What is a study? One `StudySpec`, from which everything else about the study is derived.

    studies/<name>/
      spec.py       the StudySpec: question, method, options, inputs, cost, and the Datasets it produces
      measure.py    prepare(model, inputs, options) -> StudyRun: what the model is shown, what is observed, and `finalize`,
                    a pure function from readings to Datasets (in a finalize.py of its own where it is long)
      figure.py     figure(dataset, **options) -> Figure
      words.py      describe(dataset) -> Description
      heads.py      its facts about one head, in a head's report; head_sets(dataset) where no rule says them (optional)

A spec names the functions of the other modules as ``"module:function"``, relative to its own package, and loads them when
they are needed: importing a spec loads neither torch nor matplotlib. Schemas, variable descriptions, head-table columns,
report chapters, methods, plans, command-line options and the documentation's tables all come from here; a study that ships
no figure or words gets generic ones. Studies of other packages register their spec under the entry-point group
``headwise.studies`` (see `headwise.studies.registry`).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Self

from headwise.core.errors import StudyError, did_you_mean
from headwise.core.options import option
from headwise.core.schema import Renames, Schema, Variable

if TYPE_CHECKING:
    from headwise.studies.cost import PlannedInputs, StudyCost

__all__ = [
    "STYLES", "Claim", "DatasetSpec", "FigureOption", "FigureVariant", "HeadColumn", "Method", "Renames", "StudyOptions",
    "StudySpec", "Variable", "option", "style_option",
]  # fmt: skip


SEED = "seed"
STYLES = ("full", "paper")  # of a figure: all that Headwise adds, or the layout of the published figure
QUICK_QUESTIONS = 120  # at most, in a quick build: five of each topic of the packaged questions
MAX_COUNT = 10_000_000  # of anything that a study counts; with more a build would not end


@dataclass(frozen=True)
class StudyOptions:
    """Base of a study's options: a frozen dataclass whose fields are made by `option`, validated when it is created.

    Examples:
        >>> from dataclasses import dataclass
        >>> @dataclass(frozen=True)
        ... class RecencyOptions(StudyOptions):
        ...     study = "recency"
        ...     window: int = option(4, "tokens that count as recent", minimum=1)
        >>> RecencyOptions(window=0)
        Traceback (most recent call last):
            ...
        headwise.core.errors.StudyError: recency.window must be at least 1, not 0; write --set recency.window=1.
    """

    study: ClassVar[str] = ""  # the study's name, for messages

    @classmethod
    def for_quick_build(cls) -> Self:
        """The options of a quick build (``headwise build --quick``): fewer data and shuffles, within what the study allows."""
        values = {one.name: one.metadata.get("quick") for one in dataclasses.fields(cls)}
        return cls(**{name: value for name, value in values.items() if value is not None})

    def __post_init__(self) -> None:
        for one in dataclasses.fields(self):
            value, minimum, choices = getattr(self, one.name), one.metadata.get("minimum"), one.metadata.get("choices")
            if value is None:
                continue
            name = f"{self.study}.{one.name}"
            if isinstance(value, float) and not math.isfinite(value):
                raise StudyError(f"{name} must be a finite number, not {value}; write --set {name}={one.default}.")
            if one.name == SEED and not 0 <= value < 2**63:
                raise StudyError(
                    f"{name} must be a whole number from 0 to 2^63 - 1, not {value}; write --set {name}=0."
                )
            if isinstance(value, int) and one.name != SEED and value > MAX_COUNT:
                raise StudyError(
                    f"{name} must be at most {MAX_COUNT:,}, not {value}; write --set {name}={one.default}."
                )
            if minimum is not None and not value >= minimum:
                raise StudyError(f"{name} must be at least {minimum}, not {value}; write --set {name}={minimum}.")
            if choices and value not in choices:
                raise StudyError(f"{self.study}.{one.name} cannot be {value!r}. {did_you_mean(str(value), choices)}")


@dataclass(frozen=True)
class Method:
    """How a study measures, in a paragraph, and the paper it follows (empty where the method is ours)."""

    text: str
    source: str = ""
    link: str = ""


@dataclass(frozen=True)
class HeadColumn:
    """A variable that describes single heads, and the variables that qualify it, where the Dataset has them."""

    variable: str
    low: str = ""  # lower end of its confidence interval; empty: VARIABLE_low, as `interval=True` names it
    high: str = ""
    p: str = ""
    q: str = ""
    q_matched: str = ""  # q of the same test among answers of the same length
    within: str = ""  # the same number among answers to similar questions
    q_within: str = ""  # its q
    baseline: str = ""  # a variable
    level: float = math.nan  # a baseline that is the same for all heads, such as 0.5 for an AUROC
    baseline_name: str = ""
    label: str = "{}"  # for readers; {} is the entry of the study's own dims
    definition: str = ""
    controlled: bool = False  # compares only answers to similar questions
    hits: str = (
        ""  # (example, layer, head) bool of which it is the share, so that two atlases are compared pair by pair
    )
    hits_of: str = ""  # coordinate: which entry of the variable's own dim an example belongs to
    only: Mapping[str, str] = field(default_factory=dict)  # dim -> the entry that is used

    def __post_init__(self) -> None:
        for role in ("low", "high"):
            if not getattr(self, role):
                object.__setattr__(self, role, f"{self.variable}_{role}")


@dataclass(frozen=True)
class Claim:
    """A sentence about the whole model that a Dataset shows, or does not: a number with its interval, against no effect.

    The interval is in ``variable_low`` and ``variable_high``, a p-value, where there is one, in ``variable_p``.
    """

    sentence: str  # a clause that follows "that"
    variable: str
    what: str  # what the number is a gain in, such as "AUROC"
    at: Mapping[str, Any] = field(default_factory=dict)  # dim -> entry
    level: float = 0.0  # no effect; the claim is that the number is larger


@dataclass(frozen=True)
class FigureOption:
    """One option of a figure; its type is the annotation of the figure function's parameter.

    Examples:
        >>> FigureOption(choices={"maps": "one map per kind", "layers": "heads by layer"}).meaning
        'maps: one map per kind; layers: heads by layer.'
    """

    meaning: str = ""
    example: str = ""
    needs: Mapping[str, tuple[str, ...]] = field(
        default_factory=dict
    )  # other option -> values with which this has an effect
    without: tuple[str, ...] = ()  # options that leave this one without effect
    choices: Mapping[str, str] = field(default_factory=dict)  # value -> what it shows; all others are refused

    def __post_init__(self) -> None:
        if self.choices and not self.meaning:
            each = "; ".join(f"{value}: {what}" for value, what in self.choices.items())
            object.__setattr__(self, "meaning", f"{each}.")


def style_option(layout: str, **rest: Any) -> FigureOption:
    """The option ``style`` of a study that reproduces a published figure: ``layout`` says what that looks like."""
    return FigureOption(f"full: with all that Headwise adds; paper: the published layout, {layout}.", "paper", **rest)


@dataclass(frozen=True)
class FigureVariant:
    """One figure on a study's page: its key in addresses, its label on the switch, the options that make it."""

    key: str
    label: str
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class DatasetSpec:
    """One Dataset that a study produces: its schema, and how it is shown."""

    name: str
    question: str  # what it answers, as a chapter's title
    method: Method
    variables: tuple[Variable, ...]
    attrs: tuple[str, ...] = ("record", "title")
    examples: str = "examples"  # what the size of its data counts
    figure: str = ""  # "module:function"; empty: none, or the generic one
    figure_options: Mapping[str, FigureOption] = field(default_factory=dict)
    figure_reads: tuple[str, ...] = ()  # other Datasets of the atlas that its figure takes, as arguments of their names
    variants: tuple[FigureVariant, ...] = ()
    words: str = ""  # "module:function"
    head_columns: tuple[HeadColumn, ...] | None = None  # None: those that the Dataset's attribute `record` lists
    default_columns: tuple[str, ...] = ()  # of the head table, shown first
    claims: tuple[Claim, ...] = ()  # decided on the report's first page
    head_sets: str | Callable[..., Any] = ""  # which heads it names: `head_sets.StrongestHeads`, or "module:function"
    about_heads: str = ""  # "module:function"; adds to other Datasets' words what it knows of the heads that they name
    head_facts: bool = False  # a head's report has facts of its own for it, in place of its columns
    read_with: str = ""  # command that reads it, where it has neither figure nor words
    has_page: bool = True
    made_from: str = ""  # the Dataset whose digest stands for its data
    on_own_answers: bool = False  # measured on the model's own answers, so that two models saw different texts
    renames: Mapping[int, Renames] = field(default_factory=dict)  # version -> what it called differently
    readable_since: int | None = None  # oldest version whose Datasets figures and words can still show; None: this one
    version: int = 1  # set by the StudySpec
    package: str = ""  # set by the StudySpec

    @property
    def schema(self) -> Schema:
        """The contract for its Datasets."""
        return Schema(self.name, self.version, self.variables, self.attrs, self.renames, self.readable_since)

    def load(self, role: str) -> Callable[..., Any] | None:
        """The function behind ``figure``, ``words``, ``head_sets`` or ``about_heads``; None where the study has none."""
        declared = getattr(self, role)
        return load_function(self.package, declared) if isinstance(declared, str) else declared


@dataclass(frozen=True)
class StudySpec:
    """One study. ``produces`` lists its Datasets; the one with the study's own name is committed last.

    Examples:
        >>> from headwise.studies.registry import studies
        >>> spec = studies()["spectral"]
        >>> [one.name for one in spec.produces], spec.depends_on, spec.options.__name__
        (['detection', 'spectral'], ('answers',), 'SpectralOptions')
    """

    name: str  # lower-case letters, digits and _
    package: str  # the package of its modules: `__package__`
    version: int  # raised when the same readings give other numbers, or when stored names change
    options: type[StudyOptions]  # what `--set STUDY.OPTION=VALUE` sets
    produces: tuple[DatasetSpec, ...]  # its own Dataset last
    prepare: str = "measure:prepare"  # prepare(model, inputs, options) -> StudyRun
    inputs: tuple[str, ...] = ()  # of passages, questions, responses, relations, steps, reference: what is shown
    depends_on: tuple[str, ...] = ()  # studies whose Datasets it is made from
    shares_pass: str = ""  # studies with the same word read the same texts, and are measured in one forward pass
    opt_in: bool = False  # takes long: built only when named
    quick: bool = True  # whether a quick build measures it when no study is named
    weights_only: bool = False  # runs no model: it can stay on disk
    cost: Callable[[Any, PlannedInputs], StudyCost] | None = None  # (ModelCard, inputs); None: not estimated

    def __post_init__(self) -> None:
        own = tuple(dataclasses.replace(one, version=self.version, package=self.package) for one in self.produces)
        object.__setattr__(self, "produces", own)
        if self.name not in {one.name for one in own}:
            raise StudyError(f"The study {self.name!r} must produce a Dataset of its own name.")

    @property
    def dataset(self) -> DatasetSpec:
        """The Dataset that has the study's name."""
        return next(one for one in self.produces if one.name == self.name)

    def load_prepare(self) -> Callable[..., Any]:
        """The function that prepares the study on a model."""
        function = load_function(self.package, self.prepare)
        assert function is not None
        return function


def load_function(package: str, reference: str) -> Callable[..., Any] | None:
    """The function that ``"module:function"`` names in a package; None for an empty reference."""
    if not reference:
        return None
    module, _, name = reference.partition(":")
    function: Callable[..., Any] = getattr(import_module(f"{package}.{module}"), name)
    return function
