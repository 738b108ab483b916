"""The studies: one folder each, declared by a `StudySpec` (``studies/<name>/spec.py``), listed by `registry`.

In reading order: ``spec`` (what a study is), ``registry`` (which there are), ``inputs`` (what the model is shown), ``run``
(a study prepared on a model), ``building`` (all of them into an atlas), ``cost`` and ``planning`` (before a build),
``present`` (their figures and words). Names are loaded when first used: importing a spec or the registry loads no torch.
``Profile``, ``Spectral``, ``Probing`` and so on are the options of the study of that name, which `build` takes in its place.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from headwise.core.lazy import lazy_exports

if TYPE_CHECKING:
    from headwise.studies.answers.spec import AnsweringOptions
    from headwise.studies.building import build
    from headwise.studies.causal.spec import CausalOptions
    from headwise.studies.causal_answers.spec import CausalAnswersOptions
    from headwise.studies.circuits.spec import CircuitsOptions
    from headwise.studies.function_masking.spec import FunctionMaskingOptions
    from headwise.studies.functions.spec import FunctionsOptions
    from headwise.studies.patterns.spec import PatternsOptions
    from headwise.studies.planning import Plan, plan
    from headwise.studies.probing.spec import ProbingOptions
    from headwise.studies.profile.spec import ProfileOptions
    from headwise.studies.relation_validation.spec import RelationValidationOptions
    from headwise.studies.relations.spec import RelationsOptions
    from headwise.studies.run import StudyRun
    from headwise.studies.samples.spec import SamplingOptions
    from headwise.studies.sparsity.spec import SparsityOptions
    from headwise.studies.spec import StudyOptions, StudySpec, option
    from headwise.studies.spectral.spec import SpectralOptions
    from headwise.studies.streaming.spec import StreamingOptions
    from headwise.studies.transfer.spec import TransferOptions
    from headwise.studies.uncertainty.spec import UncertaintyOptions


def _options(name: str) -> Any:
    """The options of a study: ``studies.Profile(period=64)`` is what `build` takes in place of "profile"."""
    known = import_module("headwise.studies.registry").studies()
    return next((spec.options for study, spec in known.items() if name == study.title().replace("_", "")), None)


__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        ".answers.spec": "AnsweringOptions",
        ".building": "build",
        ".causal.spec": "CausalOptions",
        ".causal_answers.spec": "CausalAnswersOptions",
        ".circuits.spec": "CircuitsOptions",
        ".function_masking.spec": "FunctionMaskingOptions",
        ".functions.spec": "FunctionsOptions",
        ".patterns.spec": "PatternsOptions",
        ".planning": "Plan plan",
        ".probing.spec": "ProbingOptions",
        ".profile.spec": "ProfileOptions",
        ".relation_validation.spec": "RelationValidationOptions",
        ".relations.spec": "RelationsOptions",
        ".run": "StudyRun",
        ".samples.spec": "SamplingOptions",
        ".sparsity.spec": "SparsityOptions",
        ".spec": "StudyOptions StudySpec option",
        ".spectral.spec": "SpectralOptions",
        ".streaming.spec": "StreamingOptions",
        ".transfer.spec": "TransferOptions",
        ".uncertainty.spec": "UncertaintyOptions",
    },
    otherwise=_options,
)

__all__ = [
    "AnsweringOptions",
    "CausalAnswersOptions",
    "CausalOptions",
    "CircuitsOptions",
    "FunctionMaskingOptions",
    "FunctionsOptions",
    "PatternsOptions",
    "Plan",
    "ProbingOptions",
    "ProfileOptions",
    "RelationValidationOptions",
    "RelationsOptions",
    "SamplingOptions",
    "SparsityOptions",
    "SpectralOptions",
    "StreamingOptions",
    "StudyOptions",
    "StudyRun",
    "StudySpec",
    "TransferOptions",
    "UncertaintyOptions",
    "build",
    "option",
    "plan",
]  # fmt: skip
