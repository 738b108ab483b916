"""Headwise reads a language model one attention head at a time.

    import headwise as hw

    model = hw.load()                                      # SmolLM2-135M-Instruct, or any decoder transformers loads
    with hw.observe(model, hw.Spectrum(k=10)) as seen:     # observe heads while the model runs
        model(**model.encode("The cat sat on the mat."))
    seen["spectrum"].laplacian                             # an xarray.DataArray (example, layer, head, rank)
    atlas = hw.build(model, studies=["profile"])           # or: headwise build
    atlas.heads()                                          # a pandas.DataFrame, one row per head

Names are loaded when first used: `import headwise` alone loads neither torch nor transformers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwise.core.lazy import lazy_exports

if TYPE_CHECKING:  # for editors, type checkers and the reference; at run time `__getattr__` brings them
    from headwise import studies
    from headwise.analysis import compare
    from headwise.atlas import Atlas, TrainingAtlas
    from headwise.bench import bench_detection
    from headwise.core.errors import HeadwiseError
    from headwise.engines import RayEngine
    from headwise.instruments import Activations, HeadOutputs, Patterns, Profile, Spectrum
    from headwise.interventions import MeanAblation, ResampleAblation, ScaleHeads, Steer
    from headwise.model import Model, ModelCard, load
    from headwise.seam import HeadWeights, Instrument, Intervention, check, observe, run
    from headwise.studies import StudyOptions, StudySpec, build, plan
    from headwise.training import sparsify
    from headwise.watching import AnswerScorer, Watch, detect, watch

__version__ = "0.1.0"

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        ".": "studies",
        ".analysis": "compare",
        ".atlas": "Atlas TrainingAtlas",
        ".bench": "bench_detection",
        ".core.errors": "HeadwiseError",
        ".engines": "RayEngine",
        ".instruments": "Activations HeadOutputs Patterns Profile Spectrum",
        ".interventions": "MeanAblation ResampleAblation ScaleHeads Steer",
        ".model": "Model ModelCard load",
        ".seam": "HeadWeights Instrument Intervention check observe run",
        ".studies": "StudyOptions StudySpec build plan",
        ".training": "sparsify",
        ".watching": "AnswerScorer Watch detect watch",
    },
    deprecated={  # names of version 0.1, for one release
        "Mean": "MeanAblation", "Resample": "ResampleAblation", "Scale": "ScaleHeads", "Sites": "Activations",
    },
)  # fmt: skip

__all__ = [
    "Activations", "AnswerScorer", "Atlas", "HeadOutputs", "HeadWeights", "HeadwiseError", "Instrument", "Intervention",
    "MeanAblation", "Model", "ModelCard", "Patterns", "Profile", "RayEngine", "ResampleAblation", "ScaleHeads", "Spectrum",
    "Steer", "StudyOptions", "StudySpec", "TrainingAtlas", "Watch", "bench_detection", "build", "check", "compare",
    "detect", "load", "observe", "plan", "run", "sparsify", "studies", "watch",
]  # fmt: skip
