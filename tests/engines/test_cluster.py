"""Room for workers, counted node by node; and what a worker asks for."""

import pytest

from headwise.core.errors import EngineError
from headwise.engines import RayEngine
from headwise.engines.cluster import Cluster, Node, local_cluster
from headwise.engines.ray.connection import parse_nodes
from headwise.engines.ray.worker import cause_of_death

TWO = Cluster((Node("a", cpus=16, gpus=4, memory=64 * 10**9), Node("b", cpus=4, gpus=8, memory=32 * 10**9)))


def test_workers_are_counted_node_by_node():
    assert TWO.workers(cpus=1) == 20
    assert TWO.workers(cpus=1, gpus=1) == 4 + 4  # b has GPUs for eight, and CPUs for four
    assert TWO.workers(cpus=1, gpus=3) == 1 + 2
    assert TWO.workers(cpus=1, gpus=0.5) == 8 + 4
    assert TWO.workers(cpus=1, memory=20 * 10**9) == 3 + 1
    assert TWO.workers(cpus=32) == 0
    assert Node("unknown", cpus=4).workers(cpus=1, memory=10**12) == 4  # unknown memory is no limit


def test_nodes_are_parsed_from_what_ray_reports():
    has = {"CPU": 8.0, "GPU": 2.0, "memory": 1e9, "accelerator_type:H100": 1.0, "node:1.2.3.4": 1.0}
    rows = [
        {"Alive": True, "NodeID": "1", "NodeManagerHostname": "b", "Resources": has},
        {"Alive": False, "NodeID": "2", "NodeManagerHostname": "dead", "Resources": has},
        {"Alive": True, "NodeID": "3", "NodeManagerHostname": "a", "Resources": {"CPU": 1.0}},
    ]
    assert parse_nodes(rows) == [Node("a", 1, id="3"), Node("b", 8, 2, 10**9, "H100", id="1")]
    assert Cluster(tuple(parse_nodes(rows))).describe() == "a: 1 CPU\nb: 8 CPUs, 2 H100 GPUs, 1 GB"


def test_this_machine_without_ray(monkeypatch):
    (node,) = local_cluster().nodes
    assert node.cpus >= 1 and node.memory > 10**8
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert local_cluster().gpus == 0


@pytest.mark.parametrize(
    ("engine", "on_cpu", "expected"),
    [
        (RayEngine(), False, (1, 1, 8, 8)),  # a GPU each, as many as there is room for
        (RayEngine(), True, (4, 0, 5, 5)),  # asked for on the CPU: as many CPUs as threads
        (RayEngine(workers=3), False, (1, 1, 3, 8)),
        (RayEngine(gpus_per_worker=4), False, (1, 4, 3, 3)),
        (RayEngine(gpus_per_worker=0.5, threads_per_worker=2), False, (2, 0.5, 10, 10)),
        (RayEngine(gpus_per_worker=0, threads_per_worker=1), False, (1, 0, 20, 20)),
        (RayEngine(workers=99), False, (1, 1, 99, 8)),  # the others join when there is room
    ],
)
def test_what_a_worker_asks_for(engine, on_cpu, expected):
    assert tuple(engine.resources_for(TWO, threads=4, on_cpu=on_cpu)) == expected


def test_a_cluster_without_gpus_has_workers_on_cpus():
    assert tuple(RayEngine().resources_for(Cluster((Node("a", cpus=8),)), threads=3, on_cpu=False)) == (3, 0, 2, 2)


def test_no_room_names_the_nodes():
    with pytest.raises(
        EngineError, match=r"A worker asks for 16 GPUs and 1 CPUs, and no node has them \(a: 16 CPUs, 4 GPUs"
    ):
        RayEngine(gpus_per_worker=16).resources_for(TWO, threads=1, on_cpu=False)


@pytest.mark.parametrize(
    ("message", "cause"),
    [
        (
            "The actor died unexpectedly. Worker unexpectedly exits with a connection error code 2. (1) SIGKILL by OOM",
            "killed",
        ),
        ("Task was killed due to the node running low on memory.", "its node ran out of memory"),
        ("The actor is dead because its node has died.", "its node died"),
        ("something\nelse", "something else"),
    ],
)
def test_causes_in_a_few_words(message, cause):
    assert cause_of_death(Exception(message)).endswith(cause)
