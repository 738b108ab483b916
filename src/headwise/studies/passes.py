"""Forward passes over many examples: batched by length, shared by several studies, readings in the order of the examples.

    observe_examples(examples, batch_tokens, device, measure_batch)    # one study, any kind of pass
    read_together({"spectral": one, "probing": other}, ids)            # one pass over texts that several studies read

Studies that read the same teacher-forced texts each have a `PassReader`; `join_runs` turns their runs into one, so that a
build shows every text once. A study may append tokens to a text (a question about the answer, say): in a causal model they
change nothing before them, and other studies do not see them, because only the text itself counts as valid. Where the answers
are given, the study `answers` is read in the same pass: the others are prepared from what is known of its Dataset before the
pass (`StudyRun.known`), and finalized with all of it.

Batches are padded on the right and run without an attention mask: in a causal model later tokens cannot reach earlier ones,
so padding changes nothing, and the fast kernels apply. All batches are queued before the first is read, so that a GPU does
not wait for the host.

Where the user chooses no sizes (`choose_sizes`), a GPU gets batches of 16,384 tokens, or the largest of which two fit into
its free memory, and shards of up to 512 examples. Another batch changes a number by rounding alone.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
import xarray as xr
from numpy.typing import NDArray
from torch import Tensor

from headwise.core.dims import EXAMPLE
from headwise.core.errors import StudyError
from headwise.core.provenance import Provenance
from headwise.corpora import Example
from headwise.engines import Shard
from headwise.seam import Instrument, Structure, observe
from headwise.studies.capacity import memory_needs
from headwise.studies.run import StudyRun

GPU_TOKENS, MIN_GPU_TOKENS = 16384, 256  # per pass; larger ones are not faster on an H200
GPU_SHARD, SHARD_BYTES = 512, 2**29  # examples; of their readings
_LOGIT_BYTES = 2**28  # of logits in float32 at a time: a vocabulary of 128,000 at 500 tokens
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
        yield Batch(tuple(indices), _sent(ids, device), _sent(valid, device))


def _sent(values: Tensor, device: torch.device) -> Tensor:
    """On the device; from pinned memory, so that the host does not wait for what a GPU is doing."""
    return values.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else values.to(device)


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
    names = [example.id for example in examples]
    return _in_order(queued, [names[index] for index in order], names)


def _in_order(
    parts: list[xr.Dataset | Callable[[], xr.Dataset]], order: Sequence[str], names: Sequence[str]
) -> xr.Dataset:
    """The readings of all batches, whose examples are in this ``order``, in the order of ``names``; empties ``parts``.

    Each number is copied once: readings can take gigabytes.
    """
    row_of = {name: row for row, name in enumerate(names)}
    arrays: dict[str, NDArray[Any]] = {}
    first: xr.Dataset | None = None
    start = 0
    parts.reverse()
    while parts:
        part = parts.pop()
        part = part if isinstance(part, xr.Dataset) else part()
        rows = [row_of[name] for name in order[start : start + part.sizes[EXAMPLE]]]
        start += len(rows)
        for name, values in part.data_vars.items():
            axis = values.dims.index(EXAMPLE)
            whole = arrays.get(str(name))
            if whole is None:
                whole = np.empty((*values.shape[:axis], len(names), *values.shape[axis + 1 :]), values.dtype)
            elif (wider := np.result_type(whole, values.dtype)) != whole.dtype:  # half precision did not suffice here
                whole = whole.astype(wider)
            np.moveaxis(whole, axis, 0)[rows] = np.moveaxis(values.values, axis, 0)
            arrays[str(name)] = whole
        if first is None:
            first = part.isel({EXAMPLE: slice(0)})
    assert first is not None
    coords = {name: coord for name, coord in first.coords.items() if EXAMPLE not in coord.dims}
    variables = {name: (first[name].dims, values, first[name].attrs) for name, values in arrays.items()}
    return xr.Dataset(variables, {**coords, EXAMPLE: list(names)}, first.attrs)


@dataclass(frozen=True)
class Sizes:
    """Of a study's batches and shards."""

    batch_tokens: int  # requested
    shard: int  # examples
    tokens_that_fit: int  # into a batch: fewer where the device has too little memory

    @property
    def parameters(self) -> dict[str, int]:
        """For a provenance: what was requested, so that a build continues whatever memory is free."""
        return {"batch_tokens": self.batch_tokens, "shard": self.shard}


def choose_sizes(
    options: Any, structure: Structure, *, tokens: int, shard: int, example_bytes: float, logits: bool = False
) -> Sizes:
    """The options ``batch_tokens`` and ``shard``; where they are None, ``tokens`` and ``shard`` on a CPU.

    A GPU gets `GPU_TOKENS`, and up to `GPU_SHARD` examples of ``example_bytes`` each, in about `SHARD_BYTES`. ``logits``:
    whether a pass makes them.
    """
    on_gpu = structure.device.type == "cuda"
    if on_gpu:
        tokens = GPU_TOKENS
        shard = max(shard, min(GPU_SHARD, 2 ** int(math.log2(max(1.0, SHARD_BYTES / example_bytes)))))
    wanted = options.batch_tokens or tokens
    return Sizes(wanted, options.shard or shard, _tokens_that_fit(structure, wanted, logits) if on_gpu else wanted)


def _tokens_that_fit(structure: Structure, tokens: int, logits: bool) -> int:
    """Halved until a pass fits twice into the free memory of a GPU."""
    card, dtype, device = structure.card, next(structure.decoder.parameters()).dtype, structure.device
    free = torch.cuda.mem_get_info(device)[0]
    free += torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)  # held, and free to be used again
    while tokens > MIN_GPU_TOKENS:
        needs = memory_needs(card, tokens, dtype, device, stats=32).working_memory
        if 2 * (needs + tokens * card.vocabulary_size * dtype.itemsize * logits) <= free:
            break
        tokens //= 2
    return tokens


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
    queued: dict[str, list[xr.Dataset | Callable[[], xr.Dataset]]] = {study: [] for study in readers}
    order: dict[str, list[str]] = {study: [] for study in readers}
    for batch in batches(shown, min(reader.batch_tokens for reader in readers.values()), structure.device):
        names = [shown[place].id for place in batch.indices]
        valid = torch.arange(batch.ids.shape[1]) < torch.tensor([lengths[name] for name in names])[:, None]
        valid = _sent(valid, structure.device)
        every = {study: [index[study].get(name) for name in names] for study in readers}
        read = {study: [row for row in rows if row is not None] for study, rows in every.items()}
        parts = {study: readers[study].observe(rows) for study, rows in every.items() if read[study]}
        firsts = [first for study in parts if (first := readers[study].first_logit(read[study])) is not None]
        instruments = [instrument for part in parts.values() for instrument in part.instruments]
        observed = observe(structure, *instruments, valid=valid) if instruments else nullcontext()
        with torch.no_grad(), observed:
            logits = _forward(structure, batch.ids, min(firsts, default=None))
        for study, part in parts.items():
            queued[study].append(_chosen(part.collect(logits), every[study]))
            order[study] += [name for name, row in zip(names, every[study], strict=True) if row is not None]
    found = {}
    for study, collected in queued.items():
        if collected:
            found[study] = _in_order(collected, order[study], [name for name in ids if name in index[study]])
    return found


def _chosen(collect: Callable[[], xr.Dataset], rows: Sequence[int | None]) -> Callable[[], xr.Dataset]:
    """Without the texts that a reader does not read."""
    if None not in rows:
        return collect
    return lambda: collect().isel({EXAMPLE: [place for place, row in enumerate(rows) if row is not None]})


class TextLogprobs(NamedTuple):
    """Which tokens of a row of a batch are scored."""

    start: int  # position of the first
    tokens: tuple[int, ...]


def token_logprobs(logits: Logits, rows: Mapping[int, TextLogprobs]) -> Tensor:
    """(token,): the log-probability of the chosen tokens of each row, one row after the other, on the device."""
    return _each_token(logits, rows, lambda own, target: own.gather(1, target[:, None])[:, 0] - own.logsumexp(dim=1))


def token_entropies(logits: Logits, rows: Mapping[int, TextLogprobs]) -> Tensor:
    """(token,): the entropy, in nats, of the distributions that these tokens were chosen from."""
    return _each_token(logits, rows, lambda own, target: torch.special.entr(own.softmax(dim=1)).sum(dim=1))


def _each_token(
    logits: Logits, rows: Mapping[int, TextLogprobs], statistic: Callable[[Tensor, Tensor], Tensor]
) -> Tensor:
    """(token,): a statistic of the float32 logits (token, vocabulary) that chose each token, and of the tokens (token,)."""
    chosen = [
        (row, one.start - 1 - logits.first + place, token)
        for row, one in rows.items()
        for place, token in enumerate(one.tokens)
    ]
    if not chosen:
        return torch.empty(0)
    device = logits.values.device
    lines, places, targets = (on_device(device, numbers) for numbers in zip(*chosen, strict=True))
    count = max(1, _LOGIT_BYTES // (4 * logits.values.shape[-1]))
    found = []
    for row, place, target in zip(lines.split(count), places.split(count), targets.split(count), strict=True):
        found.append(statistic(logits.values[row, place].float(), target))
    return torch.cat(found)


def on_device(device: torch.device, numbers: Sequence[int]) -> Tensor:
    """On the device, without waiting for what it is doing."""
    return _sent(torch.tensor(numbers), device)


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
    prepare: PrepareStudy

    def measure(self, shard: Shard) -> xr.Dataset:
        """All readings of a shard in one Dataset, every name prefixed with its study."""
        parts = read_together(self.readers, self.ids[shard.start : shard.stop])
        return xr.merge([_prefixed(study, part) for study, part in parts.items()])

    def finalize(self, shards: Sequence[xr.Dataset]) -> dict[str, xr.Dataset]:
        """The Datasets of all studies, each with its own provenance."""
        found: dict[str, xr.Dataset] = {}
        for study in self.runs:
            run = self._completed(study, found)
            for name, dataset in run.finalize(_parts(study, shards)).items():
                found[name] = dataset.assign_attrs(replace(run.provenance, study=name).to_attrs())
        return found

    def write_artifacts(self, folder: Path, datasets: Mapping[str, xr.Dataset], shards: Sequence[xr.Dataset]) -> None:
        """The files of all studies."""
        for study in self.runs:
            run = self._completed(study, datasets)
            if run.write_artifacts is not None:
                run.write_artifacts(folder, datasets, _parts(study, shards))

    def _completed(self, study: str, datasets: Mapping[str, xr.Dataset]) -> StudyRun:
        """The study's run; prepared again where it was prepared from a part of another study's Dataset."""
        partial = any(run.known is not None for name, run in self.runs.items() if name != study)
        return self.prepare(study, datasets) if partial and self.runs[study].known is None else self.runs[study]


PrepareStudy = Callable[[str, Mapping[str, xr.Dataset]], StudyRun]  # study, Datasets that it may depend on


def join_runs(studies: Sequence[str], prepare: PrepareStudy) -> StudyRun:
    """One run that shows every text once to all of these studies; StudyError if one of them does not read given texts."""
    runs: dict[str, StudyRun] = {}
    known: dict[str, xr.Dataset] = {}
    for study in studies:
        runs[study] = run = prepare(study, known)
        if run.reader is None:
            raise StudyError(f"The study {study} has a forward pass of its own here.")
        if run.known is not None:
            known[study] = run.known.assign_attrs(run.provenance.to_attrs())
    readers = {study: run.reader for study, run in runs.items() if run.reader is not None}
    ids = list(dict.fromkeys(text.id for reader in readers.values() for text in reader.texts))
    joint = _Joint(runs, readers, ids, prepare)
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
