"""Forward passes over many examples: batched by length, shared by several studies, readings in the order of the examples.

    observe_examples(examples, batch_tokens, device, measure_batch)    # one study, any kind of pass
    read_together({"spectral": one, "probing": other}, ids)            # one pass over texts that several studies read

Studies that read the same teacher-forced texts each have a `PassReader`; `join_runs` turns their runs into one, so that a
build shows every text once. A study may append tokens to a text (a question about the answer, say): in a causal model they
change nothing before them, and other studies do not see them, because only the text itself counts as valid.

Batches are padded on the right and run without an attention mask: in a causal model later tokens cannot reach earlier ones,
so padding changes nothing, and the fast kernels apply. All batches are queued before the first is read, so that a GPU does
not wait for the host.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from headwise.core.dims import EXAMPLE
from headwise.core.provenance import Provenance
from headwise.corpora import Example
from headwise.engines import Shard
from headwise.seam import Instrument, Structure, observe
from headwise.studies.run import StudyRun

_JOINT = "__"  # between a study and a variable or dim, in a shard of several studies


@dataclass(frozen=True)
class Batch:
    """Several examples, padded to one length."""

    indices: tuple[int, ...]  # of each row in the list the batch was made from
    ids: Tensor  # (batch, token)
    valid: Tensor  # (batch, token) bool


def batches(examples: Sequence[Example], tokens: int, device: torch.device) -> Iterator[Batch]:
    """Batches of at most `tokens` tokens, padding included, of examples of similar length.

    A short row is padded with its own last token (a padding token would make transformers ask for a mask). The batches
    depend on the examples alone, never on the machine, so a resumed run makes the same ones.
    """
    order = sorted(range(len(examples)), key=lambda index: (-len(examples[index].ids), index))
    while order:
        longest = len(examples[order[0]].ids)
        count = max(1, tokens // max(1, longest))
        indices, order = order[:count], order[count:]
        ids = torch.empty(len(indices), longest, dtype=torch.long)
        valid = torch.zeros(len(indices), longest, dtype=torch.bool)
        for row, index in enumerate(indices):
            own = examples[index].ids
            ids[row] = torch.tensor(own + own[-1:] * (longest - len(own)))
            valid[row, : len(own)] = True
        yield Batch(tuple(indices), ids.to(device), valid.to(device))


def observe_examples(
    examples: Sequence[Example],
    batch_tokens: int,
    device: torch.device,
    measure_batch: Callable[[Batch], xr.Dataset | Callable[[], xr.Dataset]],
) -> xr.Dataset:
    """The readings of all examples, concatenated along `example` in the order given and named by their ids.

    ``measure_batch`` runs the model on one batch and returns its readings, or a function that returns them later.
    """
    queued: list[xr.Dataset | Callable[[], xr.Dataset]] = []
    order: list[int] = []
    for batch in batches(examples, batch_tokens, device):
        queued.append(measure_batch(batch))
        order.extend(batch.indices)
    parts = [one if isinstance(one, xr.Dataset) else one() for one in queued]
    readings = xr.concat(parts, dim=EXAMPLE, data_vars="all").isel({EXAMPLE: np.argsort(order)})
    return readings.assign_coords({EXAMPLE: [example.id for example in examples]})


class Logits(NamedTuple):
    """Next-token logits of a batch, from one position on."""

    values: Tensor  # (batch, token - first, vocabulary)
    first: int  # position of the first


class Observed(NamedTuple):
    """A reader's part in the pass over one batch."""

    instruments: tuple[Instrument, ...]
    collect: Callable[[Logits | None], Callable[[], xr.Dataset]]  # reads the logits at once, the instruments later


class PassReader(Protocol):
    """What a study reads in a pass over texts that other studies may read, too."""

    structure: Structure
    texts: Sequence[Example]  # prompt and answer
    suffixes: Sequence[tuple[int, ...]]  # tokens appended to each text, for this study alone
    batch_tokens: int

    def first_logit(self, rows: Sequence[int]) -> int | None:
        """The first position of these texts whose logits it needs; None: no logits."""
        ...

    def observe(self, rows: Sequence[int | None]) -> Observed:
        """Its part in a batch; ``rows``: the index of each text, None for a text that it does not read."""
        ...


def read_together(readers: Mapping[str, PassReader], ids: Sequence[str]) -> dict[str, xr.Dataset]:
    """Show each of these texts once; the readings of every reader, in the order of ``ids``."""
    structure = next(iter(readers.values())).structure
    index = {study: {text.id: row for row, text in enumerate(reader.texts)} for study, reader in readers.items()}
    lengths: dict[str, int] = {}
    shown = []
    for name in ids:
        rows = {study: index[study][name] for study in readers if name in index[study]}
        tokens = {readers[study].texts[row].ids for study, row in rows.items()}
        assert len(tokens) == 1, f"studies that share a pass show different texts as {name!r}"
        text = tokens.pop()
        lengths[name] = len(text)
        suffix = max((readers[study].suffixes[row] for study, row in rows.items()), key=len)
        shown.append(Example(name, "answer", text + suffix))
    queued: dict[str, list[Callable[[], xr.Dataset]]] = {study: [] for study in readers}
    order: dict[str, list[str]] = {study: [] for study in readers}
    for batch in batches(shown, min(reader.batch_tokens for reader in readers.values()), structure.device):
        names = [shown[place].id for place in batch.indices]
        valid = torch.arange(batch.ids.shape[1]) < torch.tensor([lengths[name] for name in names])[:, None]
        every = {study: [index[study].get(name) for name in names] for study in readers}
        read = {study: [row for row in rows if row is not None] for study, rows in every.items()}
        parts = {study: readers[study].observe(rows) for study, rows in every.items() if read[study]}
        firsts = [first for study in parts if (first := readers[study].first_logit(read[study])) is not None]
        instruments = [instrument for part in parts.values() for instrument in part.instruments]
        with torch.no_grad(), observe(structure, *instruments, valid=valid.to(batch.ids.device)):
            logits = _forward(structure, batch.ids, min(firsts, default=None))
        for study, part in parts.items():
            queued[study].append(_chosen(part.collect(logits), every[study]))
            order[study] += [name for name, row in zip(names, every[study], strict=True) if row is not None]
    found = {}
    for study, collected in queued.items():
        if collected:
            readings = xr.concat([one() for one in collected], dim=EXAMPLE, data_vars="all")
            own = [name for name in ids if name in index[study]]
            found[study] = readings.assign_coords({EXAMPLE: order[study]}).sel({EXAMPLE: own})
    return found


def _chosen(collect: Callable[[], xr.Dataset], rows: Sequence[int | None]) -> Callable[[], xr.Dataset]:
    """Without the texts that a reader does not read."""
    if None not in rows:
        return collect
    return lambda: collect().isel({EXAMPLE: [place for place, row in enumerate(rows) if row is not None]})


def _forward(structure: Structure, ids: Tensor, first: int | None) -> Logits | None:
    """Run the model; with logits from a position on, where one is given."""
    if first is None:
        structure.decoder(input_ids=ids, use_cache=False)
        return None
    count = ids.shape[1] - first
    selects = "logits_to_keep" in inspect.signature(structure.hf.forward).parameters
    more: dict[str, Any] = {"logits_to_keep": count} if selects else {}
    logits: Tensor = structure.hf(input_ids=ids, use_cache=False, **more).logits
    return Logits(logits[:, -count:], first)


@dataclass(frozen=True)
class _Joint:
    """Several runs whose readers share a pass."""

    runs: Mapping[str, StudyRun]
    readers: Mapping[str, PassReader]
    ids: Sequence[str]

    def measure(self, shard: Shard) -> xr.Dataset:
        """All readings of a shard in one Dataset, every name prefixed with its study."""
        parts = read_together(self.readers, self.ids[shard.start : shard.stop])
        return xr.merge([_prefixed(study, part) for study, part in parts.items()])

    def finalize(self, shards: Sequence[xr.Dataset]) -> dict[str, xr.Dataset]:
        """The Datasets of all studies, each with its own provenance."""
        found = {}
        for study, run in self.runs.items():
            for name, dataset in run.finalize(_parts(study, shards)).items():
                found[name] = dataset.assign_attrs(replace(run.provenance, study=name).to_attrs())
        return found

    def write_artifacts(self, folder: Path, datasets: Mapping[str, xr.Dataset], shards: Sequence[xr.Dataset]) -> None:
        """The files of all studies."""
        for study, run in self.runs.items():
            if run.write_artifacts is not None:
                run.write_artifacts(folder, datasets, _parts(study, shards))


def join_runs(runs: Mapping[str, StudyRun]) -> StudyRun:
    """One run that shows every text once to all of these studies; each of them must have a reader."""
    readers = {study: run.reader for study, run in runs.items() if run.reader is not None}
    assert len(readers) == len(runs)
    ids = list(dict.fromkeys(text.id for reader in readers.values() for text in reader.texts))
    joint = _Joint(runs, readers, ids)
    first = next(iter(runs.values())).provenance
    provenance = Provenance(
        "+".join(runs), 1, first.model, {**first.data, "size": len(ids)},
        {study: run.provenance.key() for study, run in runs.items()}, first.seed,
    )  # fmt: skip
    size = min(run.shard_size for run in runs.values())
    return StudyRun(provenance, len(ids), size, joint.measure, joint.finalize, joint.write_artifacts, parts=runs)


def _prefixed(study: str, part: xr.Dataset) -> xr.Dataset:
    names = {str(name) for name in (*part.variables, *part.dims)}
    return part.rename({name: f"{study}{_JOINT}{name}" for name in names})


def _parts(study: str, shards: Sequence[xr.Dataset]) -> list[xr.Dataset]:
    """The study's own readings of every shard that has some."""
    prefix = f"{study}{_JOINT}"
    found = []
    for shard in shards:
        own = shard[[name for name in shard.data_vars if str(name).startswith(prefix)]]
        own = own.drop_vars([name for name in own.coords if not str(name).startswith(prefix)])
        if own.data_vars:
            found.append(
                own.rename({str(name): str(name).removeprefix(prefix) for name in (*own.variables, *own.dims)})
            )
    return found
