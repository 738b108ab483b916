"""What the examples in docstrings may use without making it. They are the reference's examples and run as tests.

| name   | what it is                                                                                                  |
|--------|-------------------------------------------------------------------------------------------------------------|
| hw     | ``import headwise as hw``                                                                                   |
| model  | a tiny model, 3 layers x 6 heads, whose heads are known by construction (`tests/planted.py`): L0H3 looks at the previous token, L1H4 does induction, L0H1 looks at the first token |
| atlas  | a made-up atlas of 6 layers x 6 heads with four studies (`tests/synthetic`); to be read, not changed          |
| answered | an atlas of `model` with the studies answers, spectral, detection and streaming, on 60 answers that are labelled by their length |
| uncertainty | a made-up Dataset of the study uncertainty: sampled answers disagree where the answer is wrong               |
| folder | an empty folder                                                                                             |

Each is made when an example names it, once for all of them. `docs/reference/index.md` tells readers the same.
"""  # noqa: E501

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headwise.core.cpu import rule_out_broken_amx

rule_out_broken_amx(Path(__file__).parents[1] / ".cache")  # before torch is imported
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("OMP_NUM_THREADS", "1")

# an entry point of Inspect, which `make` does not install
collect_ignore = [] if importlib.util.find_spec("inspect_ai") else ["headwise/inspect_scorer.py"]

NAMES = ("hw", "model", "atlas", "answered", "uncertainty", "folder")
STUDIES = ("profile", "patterns", "spectral", "relations")


@pytest.fixture(scope="session")
def hw() -> Any:
    """The package, by the name that users give it."""
    import headwise

    return headwise


@pytest.fixture(scope="session")
def model() -> Any:
    """The planted model."""
    from planted import planted_profile_model

    return planted_profile_model()


@pytest.fixture(scope="session")
def atlas(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The made-up atlas."""
    from synthetic.atlas import synthetic_atlas

    return synthetic_atlas(tmp_path_factory.mktemp("examples") / "atlas", 6, 6, STUDIES)


@pytest.fixture(scope="session")
def answered(tmp_path_factory: pytest.TempPathFactory, hw: Any, model: Any) -> Any:
    """Answers that attention can judge: a long one is wrong."""
    from answered import rows, write

    from headwise.studies.spectral.spec import SpectralOptions

    folder = tmp_path_factory.mktemp("answered")
    options = {"spectral": SpectralOptions(k=5, shuffles=200)}
    questions = write(folder / "answers.jsonl", rows(60))
    return hw.build(model, ["spectral", "streaming"], questions=questions, output=folder / "atlas", options=options)


@pytest.fixture(scope="session")
def uncertainty() -> Any:
    """Scores of wrong answers, made up."""
    from synthetic.uncertainty import uncertainty_dataset

    return uncertainty_dataset()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An empty folder."""
    return tmp_path


@pytest.fixture(autouse=True)
def _named(request: pytest.FixtureRequest, doctest_namespace: dict[str, Any]) -> Iterator[None]:
    """Whatever of these an example names, and nothing else: most examples need no model."""
    examples = getattr(getattr(request.node, "dtest", None), "examples", ())
    words = set(re.findall(r"\w+", " ".join(example.source for example in examples)))
    given = {name: request.getfixturevalue(name) for name in NAMES if name in words}
    doctest_namespace.update(given)
    yield
    for name in given:
        del doctest_namespace[name]
