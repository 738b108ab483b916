"""What a build will cost, before any weight is loaded: memory, disk and time, from the model's card.

    memory   the process itself, the weights, the activations of the largest batch, the blocks of the reductions (`memory`);
             where that is not there, what must be said to make it fit
    disk     what the studies keep for every head (and example), and what their shards hold until they are done
    time     the matrix work of each study (see `cost`) over the speed of this machine, which is measured on the spot
             with a matrix product of the model's own shape (half a second); and what is fitted in addition. The fastest
             of many products counts: others that use the machine slow some of them down, and the build only as long as
             they are there. Loading the model and drawing are left out: about a minute

An estimate, not a promise: for the default model the memory comes out within a factor 1.5 of what is measured.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch

from headwise.core.markup import card, paragraph, table
from headwise.engines.cluster import Cluster
from headwise.model import DEFAULT, ModelCard, choose_device, choose_dtype, read_card
from headwise.studies.capacity import (
    DISK,
    ClusterPlan,
    MemoryNeeds,
    Offload,
    cluster_plan_of,
    from_disk,
    memory_needs,
    memory_there,
    offloaded,
)
from headwise.studies.cost import PlannedInputs, StudyCost
from headwise.studies.functions.spec import FunctionsOptions
from headwise.studies.functions.step_sampling import sample_steps
from headwise.studies.inputs import StudyInputs
from headwise.studies.registry import default_studies, with_dependencies
from headwise.studies.registry import studies as all_studies

PROFILE_STATISTICS = 11  # per head, in the largest reduction
CHARACTERS_PER_TOKEN = 3.4  # of the packaged passages under the default tokenizer
WIDEST = 2048  # beyond it the speed hardly changes, and the product takes long
ROWS = (64, 512)  # of a product: so few that some run without being interrupted, and as many as a batch has


@dataclass(frozen=True)
class Plan:
    """The estimate. Bytes and seconds."""

    model: str
    dtype: str
    device: str
    studies: dict[str, dict[str, Any]]  # study -> examples, unit (what they are), tokens, seconds (None: not known)
    unknown: tuple[str, ...]  # studies whose cost is not estimated
    memory: dict[str, int]  # part -> bytes
    memory_total: int
    memory_there: int | None  # of this machine or device
    disk: int
    seconds: float | None
    flops: float | None  # a second, as measured; None where such a device is not here
    disk_shards: int = 0  # until the studies are done
    offload: Offload | None = None  # what makes it fit, where it does not as a whole
    from_disk: int | None = None  # what studies of weights alone hold, where the rest does not fit
    workforce: ClusterPlan | None = None  # the workers of a cluster

    @property
    def fits(self) -> bool:
        """Whether the memory is there: for one worker at least, where a cluster is asked."""
        if self.workforce is not None:
            return self.workforce.workers > 0
        return self.memory_there is None or self.memory_total <= self.memory_there

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        flags = {} if self.offload is None else {"flags": self.offload.flags}
        return {**asdict(self), **flags, "fits": self.fits}

    def __repr__(self) -> str:
        return (
            f"<Plan {self.model} in {self.dtype} on {self.device}: {size_text(self.memory_total)} of memory, "
            f"{size_text(self.disk)} of disk, {time_text(self.seconds)}{'' if self.fits else '; does NOT fit'}>"
        )

    def rows(self) -> list[tuple[str, str, str, str]]:
        """The estimate for a reader: memory, disk or time; of what; how much; and a word on it."""
        there = "" if self.memory_there is None else f"of {size_text(self.memory_there)}"
        rows = [("memory", part, size_text(size), "") for part, size in self.memory.items()]
        rows += [("memory", "total", size_text(self.memory_total), there)]
        rows += [("disk", "atlas", size_text(self.disk), "")]
        if self.disk_shards:
            rows += [("disk", "temporary files", size_text(self.disk_shards), "largest study; deleted when it is done")]
        for name, row in self.studies.items():
            shown = (
                f"{row['examples']:,.0f} {row.get('unit', 'examples')}, {row['tokens']:,.0f} tokens"
                if row["tokens"]
                else "from the weights alone"
            )
            rows += [("time", name, time_text(row["seconds"]), shown)]
        rows += [("time", name, "?", "not estimated") for name in self.unknown]
        speed = "this machine has no such device to measure"
        if self.flops is not None:
            speed = f"at {self.flops / 1e9:,.0f} Gflop/s, measured on this machine; loading and drawing not included"
        rows += [("time", "total" if self.workforce is None else "one worker", time_text(self.seconds), speed)]
        return rows + self._workers()

    def _workers(self) -> list[tuple[str, str, str, str]]:
        plan = self.workforce
        if plan is None:
            return []
        rows = [("cluster", node.partition(": ")[0], "", node.partition(": ")[2]) for node in plan.nodes]
        rows += [("workers", "that fit", f"{plan.workers:,}", f"{size_text(plan.memory)} each")]
        return [
            *rows,
            ("time", "with all workers", time_text(plan.seconds), "shards side by side, then what is fitted"),
        ]

    def verdict(self) -> str:
        """Whether it fits, in a sentence or two; and what to say to `build` where it does not."""
        if self.workforce is not None:
            return self.workforce.verdict()
        if self.fits:
            return "It fits."
        if self.offload is None:
            sentences = [
                "It does not fit in memory, not even with all weights on disk; use a smaller dtype, a GPU, or a smaller model."
            ]
        else:
            where, passes = ("on disk", "in CPU memory")[not self.offload.on_disk], f"{self.offload.passes:,} passes"
            if self.offload.on_disk:
                passes += f" of {size_text(self.offload.on_disk)}, assuming {size_text(DISK)}/s"
            sentences = [
                f"It does not fit in memory. Add {self.offload.flags} to keep part of the model {where}; reading it adds about "
                f"{time_text(self.offload.seconds)} ({passes})."
            ]
        if self.from_disk is not None:
            sentences.append(
                f"The study relations alone needs {size_text(self.from_disk)}, since it reads one layer at a time."
            )
        return " ".join(sentences)

    def _repr_html_(self) -> str:
        parts = table(self.rows()), paragraph(self.verdict())
        return card(f"Plan for {self.model}", *parts, note=f"{self.dtype} on {self.device}")


def size_text(size: float) -> str:
    """Bytes for a reader.

    >>> size_text(538_000_000), size_text(12)
    ('538 MB', '12 B')
    """
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} TB"


def time_text(seconds: float | None) -> str:
    """Seconds for a reader; what is not known is a question mark.

    >>> time_text(42), time_text(600), time_text(9000)
    ('42 s', '10 min', '2.5 h')
    """
    if seconds is None:
        return "?"
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def plan(
    model: Any = None,
    studies: Sequence[str] | None = None,
    *,
    data: Any = None,
    questions: Any = None,
    limit: int | None = 500,
    steps: Any = None,
    dtype: Any = "auto",
    device: Any = None,
    revision: str | None = None,
) -> Plan:
    """Estimate the memory, disk and time of `build`, from the model's config alone.

    Args:
        model: what `load` takes; None is the default model.
        studies: names; None: all that `build` measures by default.
        data: texts, or a file of them; as for `build`.
        questions: questions, a file of them, or the name of a known set.
        limit: at most so many questions; None: all.
        steps: questions worked out in steps, or a file of them.
        dtype: the dtype the model will be loaded in.
        device: the device it will run on.
        revision: of a model on the hub.

    Returns:
        The estimate; ``fits`` says whether the memory is there.

    Examples:
        >>> found = hw.plan(studies=["relations"])
        >>> found.fits, list(found.studies)
        (True, ['relations'])
    """
    card = read_card(model, revision=revision)
    inputs = planned_inputs(
        StudyInputs(data, questions, limit, steps_source=steps), reference=card.id == DEFAULT
    )  # an adapter to compare with ships for the default model
    where = choose_device(device)
    names = with_dependencies(default_studies() if studies is None else studies)
    return estimate(card, inputs, names, dtype=choose_dtype(dtype, card.config, where), device=where)


def estimate(
    card: ModelCard,
    inputs: PlannedInputs,
    studies: Sequence[str],
    *,
    dtype: torch.dtype = torch.float32,
    device: torch.device | None = None,
    cluster: Cluster | None = None,
    **asked: Any,
) -> Plan:
    """Estimate a build of these studies on these texts and questions.

    With a cluster also how many workers fit there; `asked`: workers, gpus (a worker), threads (a worker), if they are given.
    """
    device = device or torch.device("cuda" if torch.cuda.is_available() else "cpu")
    specs = [all_studies()[name] for name in studies]
    costs = {spec.name: spec.cost(card, inputs) for spec in specs if spec.cost is not None}
    weights_only = [spec.name for spec in specs if spec.weights_only]
    here = device.type != "cuda" or torch.cuda.is_available()
    speed = measured_flops(card.hidden_size, dtype, device) if here else None
    rows: dict[str, dict[str, Any]] = {
        name: {
            "examples": cost.examples,
            "unit": cost.unit,
            "tokens": cost.tokens,
            "seconds": None if speed is None else cost.slowdown * cost.flops / speed + cost.fitting,
        }
        for name, cost in costs.items()
    }
    there = memory_there(device) if here else {}
    needs = memory_needs(card, _widest(costs), dtype, device, PROFILE_STATISTICS)
    memory = from_disk(card) if len(weights_only) == len(specs) else _parts(needs)
    first = next(iter(there.values()), None)
    short = first is not None and sum(memory.values()) > first
    stored = choose_dtype("auto", card.config, torch.device("cuda")).itemsize / dtype.itemsize
    return Plan(
        model=card.id,
        dtype=str(dtype).removeprefix("torch."),
        device=device.type,
        studies=rows,
        unknown=tuple(name for name in studies if name not in costs),
        memory=memory,
        memory_total=sum(memory.values()),
        memory_there=first,
        disk=4 * sum(cost.stored for cost in costs.values()),
        seconds=None if speed is None else sum(row["seconds"] for row in rows.values()),
        flops=speed,
        disk_shards=max((cost.shard_bytes for cost in costs.values()), default=0),
        offload=offloaded(needs, there, sum(cost.passes for cost in costs.values()), min(1.0, stored))
        if short
        else None,
        from_disk=sum(from_disk(card).values()) if short and weights_only else None,
        workforce=None if cluster is None else cluster_plan_of(cluster, needs, costs, _seconds(rows), **asked),
    )


def planned_inputs(inputs: StudyInputs, *, reference: bool) -> PlannedInputs:
    """The sizes of what the model will be shown, without a tokenizer; ``reference``: whether a second model is compared."""
    options = FunctionsOptions()
    chosen = sample_steps(inputs.steps, options.steps, options.seed)
    return PlannedInputs(
        passage_tokens=tuple(round(len(item.text) / CHARACTERS_PER_TOKEN) for item in inputs.passages.items),
        questions=len(inputs.questions),
        step_questions=len(chosen.chains),
        steps=sum(map(len, chosen.chains)),
        functions=len(chosen.functions),
        reference=reference,
    )


def _seconds(rows: Mapping[str, Mapping[str, Any]]) -> dict[str, float | None]:
    return {name: row["seconds"] for name, row in rows.items()}


def _parts(needs: MemoryNeeds) -> dict[str, int]:
    parts = {
        "weights": needs.weights,
        "activations of a batch": needs.activations,
        "attention statistics": needs.reductions,
    }
    return ({"Python and libraries": needs.process} if needs.process else {}) | parts


def _widest(costs: Mapping[str, StudyCost]) -> int:
    return max((cost.batch_tokens for cost in costs.values()), default=1)


def measured_flops(width: int, dtype: torch.dtype, device: torch.device, seconds: float = 0.4) -> float:
    """Floating-point operations a second, in the fastest of many products with a width x 4 width matrix.

    On a CPU also with one thread: where others use the machine, two threads hardly ever run at once.
    """
    width, threads = min(width, WIDEST), torch.get_num_threads()
    b = torch.randn(width, 4 * width, device=device).to(dtype)
    ways = [(rows, count) for rows in ROWS for count in ({1, threads} if device.type == "cpu" else {threads})]
    try:
        return max(_fastest(b, rows, count, seconds / len(ways)) for rows, count in ways)
    finally:
        torch.set_num_threads(threads)


def _fastest(b: torch.Tensor, rows: int, threads: int, seconds: float) -> float:
    """The speed of the fastest product of so many rows."""
    torch.set_num_threads(threads)
    a = torch.randn(rows, len(b), device=b.device).to(b.dtype)
    (a @ b)[0, 0].item()
    fastest, end = float("inf"), time.perf_counter() + seconds
    while fastest == float("inf") or time.perf_counter() < end:
        start = time.perf_counter()
        (a @ b)[0, 0].item()
        fastest = min(fastest, time.perf_counter() - start)
    return 2 * rows * b.numel() / fastest
