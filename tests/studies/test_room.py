"""What fits, what makes it fit, and how many workers a cluster has room for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaConfig

from headwise.core.errors import EngineError
from headwise.engines.cluster import Cluster, Node
from headwise.model import ModelCard
from headwise.studies import capacity as room
from headwise.studies import planning
from headwise.studies.capacity import GIB, MemoryNeeds, cluster_plan_of, memory_needs, offloaded
from headwise.studies.cost import StudyCost
from headwise.studies.inputs import StudyInputs

CPU = torch.device("cpu")
SEVENTY = MemoryNeeds(process=0, weights=141 * 10**9, largest=2 * 10**9, activations=3 * 10**9, reductions=10**9)


@pytest.fixture(scope="module")
def seven() -> ModelCard:
    config = LlamaConfig(
        hidden_size=4096, intermediate_size=11008, num_hidden_layers=32, num_attention_heads=32, vocab_size=32000
    )
    config.dtype = torch.bfloat16
    return ModelCard.from_config(config, "seven")


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "measured_flops", lambda *_: 180e9)


def plan(card: ModelCard, there: dict[Any, int], monkeypatch: pytest.MonkeyPatch, *studies: str, **more: Any) -> Any:
    monkeypatch.setattr(planning, "memory_there", lambda _: there)
    shown = planning.planned_inputs(StudyInputs(limit=500), reference=False)
    return planning.estimate(card, shown, studies or ("profile",), dtype=torch.float32, device=CPU, **more)


def test_needs(seven: ModelCard) -> None:
    found = memory_needs(seven, 1, torch.bfloat16, CPU, 11)
    assert found.weights == 2 * seven.parameters == 2 * 6_738_415_616
    assert found.largest == 2 * 32000 * 4096  # the embedding, larger than any matrix of a layer (2 x 4096 x 11008)


def test_what_fits_needs_no_flags(seven: ModelCard, quick: None, monkeypatch: pytest.MonkeyPatch) -> None:
    found = plan(seven, {"cpu": 64 * GIB}, monkeypatch)
    assert found.fits and found.offload is None and found.verdict() == "It fits."


def test_what_does_not_fit_is_told_what_to_say(seven: ModelCard, quick: None, monkeypatch: pytest.MonkeyPatch) -> None:
    found = plan(seven, {"cpu": 24 * GIB}, monkeypatch, "profile", "relations")
    assert not found.fits and found.offload is not None
    limit = found.offload.limits["cpu"]
    held = found.memory_total - found.memory["weights"] + memory_needs(seven, 1, torch.float32, CPU, 11).largest
    assert limit % GIB == 0 and held + limit <= 0.8 * 24 * GIB < held + limit + GIB
    assert found.offload.on_disk == (4 * seven.parameters - limit) // 2  # the files are bfloat16
    assert found.offload.seconds == pytest.approx(found.offload.passes * found.offload.on_disk / room.DISK)
    said = found.verdict()
    assert f"Add --memory cpu={limit // GIB}GiB" in said and "relations alone needs" in said
    assert json.loads(json.dumps(found.to_dict()))["flags"] == f"--memory cpu={limit // GIB}GiB"


def test_what_cannot_fit(seven: ModelCard, quick: None, monkeypatch: pytest.MonkeyPatch) -> None:
    found = plan(seven, {"cpu": 1 * GIB}, monkeypatch)
    assert not found.fits and found.offload is None and "not even with all weights on disk" in found.verdict()


def test_relations_need_no_whole_model(seven: ModelCard, quick: None, monkeypatch: pytest.MonkeyPatch) -> None:
    found = plan(seven, {"cpu": 16 * GIB}, monkeypatch, "relations")
    assert found.fits and found.memory_total < 6e9 and "weights" not in found.memory


def test_a_gpu_is_filled_first_then_memory_then_disk() -> None:
    found = offloaded(SEVENTY, {0: 80 * 10**9, "cpu": 64 * 10**9}, passes=10, stored=1.0)
    assert found is not None
    gpu, cpu = int(0.9 * 80e9) - 6 * 10**9, int(0.8 * 64e9) - int(room.PROCESS)
    assert found.limits == {0: gpu // GIB * GIB, "cpu": cpu // GIB * GIB}
    assert found.on_disk == SEVENTY.weights - sum(found.limits.values())
    assert found.flags == f"--memory 0={gpu // GIB}GiB,cpu={cpu // GIB}GiB"
    assert found.seconds == pytest.approx(10 * (found.on_disk / room.DISK + found.limits["cpu"] / room.BUS))


# ---- workers ----------------------------------------------------------------------------------------------------------

LOADS = {"a": StudyCost(640, 1, 1.0, 1, 1, shard=64), "b": StudyCost(64, 1, 1.0, 1, 1, fitting=30.0, shard=64)}
SECONDS = {"a": 100.0, "b": 40.0}


def nodes(count: int, **size: Any) -> Cluster:
    return Cluster(tuple(Node(f"n{place}", **size) for place in range(count)))


def test_a_70b_needs_two_gpus_a_worker() -> None:
    cluster = nodes(3, cpus=96, gpus=8, memory=10**12, gpu_memory=141 * 10**9)
    found = cluster_plan_of(cluster, SEVENTY, LOADS, SECONDS)
    assert (found.gpus, found.workers) == (2, 12)
    assert found.seconds == pytest.approx(
        100 * 1 / 10 + (10 + 30)
    )  # ten shards in one round; what is fitted is not shared
    assert found.verdict() == "12 workers fit, 2 GPUs each."


def test_too_few_gpus_are_refused_with_the_number_needed() -> None:
    cluster = nodes(1, cpus=96, gpus=8, memory=10**12, gpu_memory=80 * 10**9)
    found = cluster_plan_of(cluster, SEVENTY, LOADS, SECONDS, gpus=1)
    assert found.workers == 0 and found.verdict().endswith("that a worker needs; give --gpus-per-worker 3.")
    small = nodes(4, cpus=96, gpus=2, memory=10**12, gpu_memory=40 * 10**9)
    assert (
        "needs 5 GPUs of one node, and the largest node has 2"
        in cluster_plan_of(small, SEVENTY, LOADS, SECONDS).verdict()
    )
    with pytest.raises(EngineError, match="cannot have -1 GPUs"):
        cluster_plan_of(cluster, SEVENTY, LOADS, SECONDS, gpus=-1)


def test_workers_on_cpus_are_as_many_as_memory_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 4)
    small = MemoryNeeds(process=600_000_000, weights=10**9, largest=1, activations=300_000_000, reductions=100_000_000)
    found = cluster_plan_of(nodes(2, cpus=16, memory=5 * 10**9), small, LOADS, SECONDS, threads=1)
    assert found.workers == 4 and found.memory == 2 * 10**9  # two a node, though it has CPUs for sixteen
    assert found.seconds == pytest.approx(400 * 3 / 10 + (160 - 30) + 30)  # one thread of the four that were measured
    one = cluster_plan_of(nodes(2, cpus=16, memory=5 * 10**9), small, LOADS, SECONDS, threads=1, workers=1)
    assert one.workers == 1 and one.verdict() == "1 worker fits, 1 threads each."
    none = cluster_plan_of(nodes(2, cpus=16, memory=10**9), small, LOADS, SECONDS, threads=1)
    assert none.verdict().startswith("A worker needs 2 GB, and the largest node has 1 GB")


def test_without_a_gpu_here_time_is_not_known(seven: ModelCard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    cluster = nodes(1, cpus=64, gpus=4, memory=10**12)
    shown = planning.planned_inputs(StudyInputs(limit=500), reference=False)
    found = planning.estimate(
        seven, shown, ["profile"], dtype=torch.bfloat16, device=torch.device("cuda"), cluster=cluster
    )
    assert found.fits and found.seconds is None and found.workforce.workers == 4
    assert ("time", "one worker", "?", "this machine has no such device to measure") in found.rows()
    assert json.loads(json.dumps(found.to_dict()))["workforce"]["seconds"] is None


def test_the_command_line(headwise_plan: Any) -> None:
    told = headwise_plan("--engine", "ray", "--threads-per-worker", "1", "--json")
    assert told["workforce"]["workers"] >= 1 and told["fits"]


@pytest.fixture
def headwise_plan(tmp_path: Path, quick: None) -> Any:
    from planted import save_tiny
    from typer.testing import CliRunner

    from headwise.cli.main import app

    folder = save_tiny(tmp_path / "tiny")

    def run(*arguments: str) -> dict[str, Any]:
        found = CliRunner().invoke(app, ["plan", str(folder), "--studies", "profile", *arguments])
        assert found.exit_code == 0, found.output
        return json.loads(found.stdout)

    return run
