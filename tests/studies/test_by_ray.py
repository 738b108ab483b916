"""A build by two Ray workers against one in this process: the same atlas to the bit, files beside the maps included.

The tiny model has random weights and a tokenizer of made-up words, so the studies here are those that need no knowledge;
all others were run on the default model (docs/cluster.md).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import answered
import pytest
from faults.verdict import content
from planted import save_tiny, tiny_passages
from toy_spec import on_the_path

from headwise.atlas import Atlas
from headwise.core.errors import DataError, EngineError
from headwise.corpora import read_questions
from headwise.engines import RayEngine
from headwise.model import load
from headwise.studies import ProfileOptions, build
from headwise.studies.answers.spec import AnsweringOptions
from headwise.studies.patterns.spec import PatternsOptions
from headwise.studies.probing.spec import ProbingOptions
from headwise.studies.sparsity.spec import SparsityOptions
from headwise.studies.spectral.spec import SpectralOptions

pytestmark = [pytest.mark.xdist_group("ray")]
pytest.importorskip("ray", reason="the package ray is not installed (pip install 'headwise[ray]')")

STUDIES = ["profile", "patterns", "sparsity", "answers", "spectral", "probing"]
OPTIONS: dict[str, Any] = {
    "profile": ProfileOptions(repeats=3, period=20, shard=2),
    "patterns": PatternsOptions(prompts=6, tokens=24, shard=2),
    "sparsity": SparsityOptions(rules=("top 2", "random 2"), prompts=6, tokens=16, shard=2),
    "answers": AnsweringOptions(shard=20),
    "spectral": SpectralOptions(shard=20, shuffles=200),
    "probing": ProbingOptions(shard=20, shuffles=40, paper=False, sites=("mlp_in",), p_true=False),
}
TWO = RayEngine(workers=2, threads_per_worker=1)


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A model in a folder, one to compare it with, texts, and questions with answers and labels."""
    folder = tmp_path_factory.mktemp("given")
    save_tiny(folder / "model", layers=2)
    save_tiny(folder / "other", layers=2, seed=1)
    asked = read_questions(answered.write(folder / "asked.jsonl", answered.rows(90)))
    texts = tiny_passages(8, tokens=(60, 90))
    return {"model": str(folder / "model"), "reference": str(folder / "other"), "data": texts, "questions": asked}


@pytest.fixture(scope="module")
def ray() -> Iterator[None]:
    from headwise.engines.ray.connection import connect

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", on_the_path())
        with connect(cpus=2):
            yield


@pytest.fixture(scope="module")
def in_process(given: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Atlas:
    return build(studies=STUDIES, **given, output=tmp_path_factory.mktemp("local") / "atlas", options=OPTIONS)


def test_two_workers_give_the_same_atlas(ray: None, given: dict[str, Any], in_process: Atlas, tmp_path: Path) -> None:
    """Studies that need others, a second model, files beside the maps."""
    by_ray = build(studies=STUDIES, **given, output=tmp_path / "atlas", options=OPTIONS, engine=TWO)
    assert by_ray.studies == in_process.studies
    assert content(by_ray) == content(in_process)
    assert any(name.endswith(".safetensors") for name in content(by_ray))  # the detector came along
    assert not list((tmp_path / "atlas" / ".shards").glob("*"))
    again = build(studies=STUDIES, **given, output=in_process.path, options=OPTIONS, engine=TWO)
    assert again.studies == by_ray.studies  # nothing is of another origin: all is left as it is


def test_a_refusal_of_a_study_comes_through_and_leaves_no_atlas(
    ray: None, given: dict[str, Any], tmp_path: Path
) -> None:
    with pytest.raises(DataError, match="text of at least"):
        build(given["model"], ["profile"], data=tiny_passages(1), output=tmp_path / "atlas", engine=TWO)
    assert not (tmp_path / "atlas").exists()


def test_a_model_in_memory_is_refused_before_ray_is_started(given: dict[str, Any], tmp_path: Path) -> None:
    loaded = load(given["model"])
    with pytest.raises(
        EngineError, match=r"Workers load the model themselves, and a Model .* save it with save_pretrained"
    ):
        build(loaded, ["profile"], data=given["data"], output=tmp_path / "atlas", engine="ray")
    with pytest.raises(EngineError, match="Workers load the model to compare with"):
        build(given["model"], ["patterns"], reference=loaded, output=tmp_path / "atlas", engine="ray")


def test_an_unknown_engine_is_refused_with_a_guess(given: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=r"no engine 'rays'\. Did you mean 'ray'"):
        build(given["model"], ["profile"], output=tmp_path / "atlas", engine="rays")
