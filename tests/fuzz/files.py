"""Grammars of what other people send: atlases, detectors, data files, models, adapters.

A grammar draws one case: it writes the inputs into a folder and returns what is then done with them.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import json
import struct
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any
from unittest import mock

import hostile
import numpy as np
import xarray as xr
from answered import rows

from fuzz.harness import Act, Outcome, call, command
from fuzz.odd import change_bytes, change_tree, dumps, odd_number, odd_text, odd_value
from fuzz.scene import STUDIES, Answer, Files, Scene, Served, listed, put
from headwise.atlas import Atlas
from headwise.atlas.encoding import encode_files
from headwise.figures import to_payload

__all__ = ["FILES", "refused_or_answered"]

Draw = Callable[[Random, Scene, Path], Act]
PAGES = ("/", "/atlas/", "/api/atlas/atlas", "/api/atlas/findings", "/api/atlas/heads", "/api/atlas/agreement",
         "/api/atlas/head/L0H0", "/api/atlas/head/L2H1", "/api/atlas/download/heads.csv")  # fmt: skip


# ---- atlases ---------------------------------------------------------------------------------------------------------


def metadata(dice: Random, scene: Scene, folder: Path) -> Act:
    """A zarr.json changed: the atlas's own, a study's, or a variable's."""
    study, files = _study(dice, scene)
    said = ""
    if dice.random() < 0.3:
        root = listed({study: files})
        content, said = _changed_json(dice, root)
        return _read(dice, scene, put(folder / "atlas", {study: files}, content), study, f"zarr.json: {said}")
    key = dice.choice([key for key in files if key.endswith("zarr.json")] + ["zarr.json"] * 3)
    files[key], said = _changed_json(dice, json.loads(files[key]))
    root_bytes = None if dice.random() < 0.8 else dumps(listed({study: scene.files(study)}))
    return _read(dice, scene, put(folder / "atlas", {study: files}, root_bytes), study, f"{study}/{key}: {said}")


def origin(dice: Random, scene: Scene, folder: Path) -> Act:
    """A provenance, or another attribute of a study, changed; all checksums agree."""
    study, files = _study(dice, scene)
    node = json.loads(files["zarr.json"])
    if dice.random() < 0.6:
        tree, said = change_tree(dice, json.loads(node["attributes"]["provenance"]))
        node["attributes"]["provenance"] = json.dumps(tree, allow_nan=True)
    else:
        name = dice.choice(list(node["attributes"]))
        value = node["attributes"][name]
        if isinstance(value, str) and value[:1] in ("[", "{") and dice.random() < 0.6:
            tree, said = change_tree(dice, json.loads(value))
            node["attributes"][name] = json.dumps(tree)
        else:
            node["attributes"][name] = odd_value(dice)
            said = f"= {node['attributes'][name]!r}"[:80]
        said = f"{name} {said}"
    files["zarr.json"] = dumps(node)
    return _read(dice, scene, put(folder / "atlas", {study: files}), study, f"attribute of {study}: {said}")


def arrays(dice: Random, scene: Scene, folder: Path) -> Act:
    """Values, dims, dtypes and names changed by somebody who can write Zarr; all checksums agree."""
    study, files = _study(dice, scene)
    dataset, said = scene.dataset(study).copy(deep=True), []
    for _ in range(dice.choice((1, 1, 2))):
        name = str(dice.choice(list(dataset.variables)))
        way = dice.choice(list(ALTERATIONS))
        try:
            altered = ALTERATIONS[way](dice, dataset.copy(deep=True), name)
            files = _encoded(files, dataset, altered)
        except Exception:  # what cannot be written needs no reader
            continue
        dataset = altered
        said.append(f"{name}: {way}")
    return _read(dice, scene, put(folder / "atlas", {study: files}), study, f"{study}: {'; '.join(said)}")


def _encoded(files: Files, before: xr.Dataset, after: xr.Dataset) -> Files:
    """The files of a Dataset, of which only the variables that differ are encoded: all of them takes long."""
    old = before.variables
    kept = {name for name, one in after.variables.items() if name in old and one.identical(old[name])}
    new = encode_files(after.drop_vars(kept))
    return {key: content for key, content in files.items() if key.split("/")[0] in kept} | new


def damage(dice: Random, scene: Scene, folder: Path) -> Act:
    """Bytes changed, files lost or swapped, checksums as they were: noticed, or what is read is what was written."""
    study, files = _study(dice, scene)
    key = dice.choice(list(files))
    way = dice.randrange(5)
    if way == 0:
        del files[key]
        said = "lost"
    elif way == 1:
        other = dice.choice(list(files))
        files[key], files[other] = files[other], files[key]
        said = f"swapped with {other}"
    else:
        files[key], said = change_bytes(dice, files[key])
    atlas = put(folder / "atlas", {study: files}, dumps(listed({study: scene.files(study)})))
    good = scene.dataset(study)

    def read() -> Outcome | None:
        found = Atlas.open(atlas)[study]
        same = all(_same(found[name].values, good[name].values) for name in good.variables)
        return None if same and found.attrs == good.attrs else Outcome(0, wrong=("damage went unnoticed",))

    return Act(f"{study}/{key}: {said}", lambda: call(read))


def malicious(dice: Random, scene: Scene, folder: Path) -> Act:
    """The atlases of `hostile`: links, pipes, pickles, bombs, depth; with a change of theirs."""
    study = "profile"
    atlas = put(folder / "atlas", {study: dict(scene.files(study))})
    outside = folder / "outside"
    outside.mkdir()
    (outside / "secret").write_text("mine")
    kinds: dict[str, Callable[[], object]] = {
        name: lambda make=make: make(atlas / study) for name, make in hostile.STORED_WRONG.items()
    }
    kinds |= {f"a link: {name}": make for name, make in hostile.links(atlas, outside).items()}
    kinds |= {
        f"a pipe: {key}": lambda key=key: hostile.make_fifo(atlas / key)
        for key in (".swap/lock", "zarr.json", "profile/zarr.json", "profile/pipe", "profile/value/c/0/0/0")
    }
    kinds["a bomb"] = lambda: hostile.with_bomb(atlas / study, dice.choice((0.5, 3.4, 5.0)))
    kinds["long text"] = lambda: hostile.with_long_text(atlas / study)
    kind = dice.choice(list(kinds))
    kinds[kind]()
    if not kind.startswith(("a link", "a pipe")):
        hostile.relist(atlas)
    act = _read(dice, scene, atlas, study, kind)

    def do() -> Outcome:
        found = act.do()
        wrong = found.wrong + (("code ran",) if hostile.RAN else ())
        leaked = "mine" in found.out + found.err or (outside / "secret").read_text() != "mine"
        return found._replace(wrong=wrong + (("led outside",) if leaked else ()))

    hostile.RAN.clear()
    return Act(f"{kind} | {act.about}", do, speech=act.speech, terminal=act.terminal)


def _study(dice: Random, scene: Scene) -> tuple[str, Files]:
    study = dice.choice(STUDIES)
    return study, dict(scene.files(study))


def _changed_json(dice: Random, tree: Any) -> tuple[bytes, str]:
    if dice.random() < 0.75:
        changed, said = change_tree(dice, tree)
        return dumps(changed), said
    return change_bytes(dice, dumps(tree))


def _same(one: np.ndarray, other: np.ndarray) -> bool:
    return one.shape == other.shape and (
        one.tobytes() == other.tobytes() if one.dtype.kind in "biuf" else bool((one == other).all())
    )


def _read(dice: Random, scene: Scene, atlas: Path, study: str, about: str) -> Act:
    """What readers do with an atlas, one of it."""
    out = dice.choice(("heads.csv", "heads.json", "heads.parquet"))
    ways: dict[str, tuple[int, Callable[[], Outcome]]] = {
        "describe": (6, lambda: command("describe", atlas, study)),
        "describe --json": (1, lambda: command("describe", atlas, study, "--json")),
        "heads": (4, lambda: command("heads", atlas, "--columns", "all")),
        "heads -o": (1, lambda: command("heads", atlas, "-o", out)),
        "head": (2, lambda: command("head", atlas, "L1H1")),
        "figure": (6, lambda: _figure(atlas, study)),
        "served": (6, lambda: _served(atlas, study, dice)),
        "compare": (1, lambda: command("compare", scene.atlas, atlas, "--different-data")),
        "answers": (4 if study == "answers" else 0, lambda: command("answers", atlas)),
        "show": (0.3, lambda: command("show", atlas, study, "-o", "a.svg")),
        "report": (0.2, lambda: command("report", atlas, "-o", "a.html")),
        "export": (0.5, lambda: command("export", atlas, "--to", "headvis", "-o", "out")),
        "copy": (0.5, lambda: command("export", atlas, "--to", "./copy")),
    }
    (way,) = dice.choices(list(ways), [weight for weight, _ in ways.values()])
    speech = way in ("describe", "head", "answers", "compare", "served")
    return Act(f"{about} | {way}", ways[way][1], speech=speech, terminal=way != "served")


def _figure(atlas: Path, study: str) -> Outcome:
    """``headwise show``, with the numbers of the figure in place of the drawing, which takes long."""

    def save(figure: Any, path: Path) -> None:
        json.dumps(to_payload(figure), allow_nan=False)

    with mock.patch("headwise.figures.save", save):
        return command("show", atlas, study)


def _served(atlas: Path, study: str, dice: Random) -> Outcome:
    from headwise.server import create_app

    def ask() -> Outcome:
        served = Served(create_app([atlas]))
        page = dice.choice(
            [*PAGES, f"/api/atlas/study/{study}", f"/atlas/study/{study}", f"/api/atlas/figure/{study}/value"]
        )
        try:
            return refused_or_answered(served.ask("GET", page.encode()), str(atlas.parent), page)
        finally:
            served.loop.close()

    return call(ask)


def refused_or_answered(answer: Answer, secret: str, about: str = "") -> Outcome:
    """What must hold for an answer of the server; ``secret`` is a path that it may not reveal."""
    wrong = []
    if not 200 <= answer.status < 500 and answer.status != 503:
        wrong.append(f"status {answer.status} {about}")
    if "default-src 'none'" not in answer.headers.get("content-security-policy", "") or (
        answer.headers.get("x-content-type-options") != "nosniff"
    ):
        wrong.append(f"no security headers {about}")
    text = answer.body.decode("utf-8", "replace")
    if secret in text or any(secret in value for value in answer.headers.values()):
        wrong.append(f"a path is revealed {about}")
    if answer.headers.get("content-type", "").startswith("application/json"):
        try:
            json.loads(answer.body or b"null", parse_constant=lambda name: wrong.append(f"{name} in JSON"))
        except ValueError:
            wrong.append("not JSON")
    error = json.loads(text).get("error", "?") if answer.status >= 400 and text.startswith('{"error"') else ""
    return Outcome(0, error, wrong=tuple(wrong))


def _array(change: Callable[[Random, np.ndarray], np.ndarray]) -> Callable[[Random, xr.Dataset, str], xr.Dataset]:
    def alter(dice: Random, dataset: xr.Dataset, name: str) -> xr.Dataset:
        array = dataset[name]
        return dataset.assign({name: (array.dims, change(dice, array.values.copy()), array.attrs)})

    return alter


def _some(dice: Random, values: np.ndarray) -> np.ndarray:
    flat = values.reshape(-1)
    text = flat.dtype.kind not in "biuf"
    for _ in range(dice.choice((1, 3, flat.size))):
        if flat.size:
            with np.errstate(all="ignore"):
                flat[dice.randrange(flat.size)] = (
                    odd_text(dice) if text else np.float64(odd_number(dice)).astype(flat.dtype)
                )
    return flat.reshape(values.shape)


def _resized(dice: Random, dataset: xr.Dataset, name: str) -> xr.Dataset:
    dim = dice.choice(list(dataset.sizes))
    keep = dice.choice((0, 1, dataset.sizes[dim] - 1))
    return dataset.isel({dim: slice(0, max(keep, 0))})


def _renumbered(dice: Random, dataset: xr.Dataset, name: str) -> xr.Dataset:
    dim = dice.choice([dim for dim in dataset.sizes if dim in dataset.coords])
    return dataset.isel({dim: dice.sample(range(dataset.sizes[dim]), dataset.sizes[dim])})


ALTERATIONS: dict[str, Callable[[Random, xr.Dataset, str], xr.Dataset]] = {
    "some values": _array(_some),
    "all not a number": _array(lambda dice, values: np.full_like(values, np.nan)),
    "all the same": _array(lambda dice, values: np.full_like(values, values.reshape(-1)[0])),
    "another dtype": _array(
        lambda dice, values: values.astype(dice.choice(("float64", "float16", "int64", "bool", "str")))
    ),
    "as text": _array(lambda dice, values: np.vectorize(str, otypes=[object])(values)),
    "reversed": _array(lambda dice, values: values.T.reshape(values.shape)),
    "dropped": lambda dice, dataset, name: dataset.drop_vars(name),
    "renamed": lambda dice, dataset, name: dataset.rename({name: dice.choice(("value", "x", "layer", "A" * 200))}),
    "another dim": lambda dice, dataset, name: dataset.rename(
        {dice.choice(list(dataset.sizes)): dice.choice(("x", "token", "fold"))}
    ),
    "one more dim": lambda dice, dataset, name: dataset.assign({name: dataset[name].expand_dims("draw")}),
    "without a dim": lambda dice, dataset, name: dataset.assign(
        {name: dataset[name].isel({dice.choice(dataset[name].dims): 0})}
    ),
    "resized": _resized,
    "in another order": _renumbered,
    "no coordinate": lambda dice, dataset, name: dataset.reset_coords(name),
    "a coordinate": lambda dice, dataset, name: dataset.set_coords(name),
    "an odd attribute": lambda dice, dataset, name: dataset.assign(
        {
            name: dataset[name].assign_attrs(
                {dice.choice(("units", "long_name", "x")): dice.choice((odd_text(dice), 5, [1]))}
            )
        }
    ),
}


# ---- detectors -------------------------------------------------------------------------------------------------------


def detectors(dice: Random, scene: Scene, folder: Path) -> Act:
    """A detector's JSON or arrays changed, mostly by somebody who seals them again; then it scores."""
    from headwise.probes import Detector
    from headwise.probes.detector_file import _seal

    tree, data = scene.detector
    said = ""
    if dice.random() < 0.3:
        data, said = _changed_safetensors(dice, data)
        tree = {**tree, "sha256": hashlib.sha256(data).hexdigest()} if dice.random() < 0.8 else tree
    content = b""
    if not said or dice.random() < 0.3:
        tree, more = change_tree(dice, tree)
        said = f"{said} {more}"
    if dice.random() < 0.8 and isinstance(tree, dict):
        tree.pop("seal", None)
        with suppress(ValueError, TypeError, RecursionError):
            tree["seal"] = _seal(tree)
    content = dumps(tree)
    if dice.random() < 0.15:
        content, more = change_bytes(dice, content)
        said = f"{said} {more}"
    (folder / "detector.json").write_bytes(content)
    (folder / "detector.safetensors").write_bytes(data)

    def score() -> Outcome | None:
        detector = Detector.load(folder / "detector")
        explained = detector.explain(
            {name: scene.features.get(name, scene.features["length"]) for name in detector.blocks_}
        )
        detector.unusual(explained)
        chances = explained["probability"].values
        fine = bool(((chances >= 0) & (chances <= 1)).all())
        return None if fine else Outcome(0, wrong=(f"a probability of {chances.min()} to {chances.max()}",))

    return Act(f"detector: {said}", lambda: call(score))


def _changed_safetensors(dice: Random, data: bytes) -> tuple[bytes, str]:
    """Another header, or other bytes."""
    if dice.random() < 0.4:
        return change_bytes(dice, data)
    (length,) = struct.unpack_from("<Q", data)
    header, said = change_tree(dice, json.loads(data[8 : 8 + length]))
    text = dumps(header)
    stated = dice.choice((len(text), len(text), len(text), 0, 2**40, 2**64 - 1))
    return struct.pack("<Q", stated) + text + data[8 + length :], f"header: {said}"


# ---- data files ------------------------------------------------------------------------------------------------------


def data_files(dice: Random, scene: Scene, folder: Path) -> Act:
    """Texts, questions, word pairs and steps in every format, with odd rows and broken bytes."""
    option = dice.choice(("--data", "--questions", "--relations", "--steps", "stdin"))
    tree: Any = json.loads(json.dumps(GOOD_ROWS[option]))
    said = "good"
    if dice.random() < 0.8:
        tree, said = change_tree(dice, tree)
    suffix = dice.choice(
        (".jsonl", ".jsonl", ".csv", ".json", ".jsonl.gz", ".tsv", ".txt", ".parquet", ".json.gz", ".arrow")
    )
    content = _written(tree, suffix)
    if dice.random() < 0.3:
        content, more = change_bytes(dice, content)
        said = f"{said} {more}"
    if option == "stdin":
        text = _written(tree, ".jsonl").decode("utf-8", "surrogatepass")
        return Act(f"standard input: {said}", lambda: command("detect", scene.atlas, "--data", "-", stdin=text))
    path = folder / f"rows{suffix}"
    path.write_bytes(content)
    more = ["--one-means", "wrong"] if option == "--questions" and dice.random() < 0.3 else []
    where = folder if dice.random() < 0.1 else path
    verb = dice.choice(("build", "build", "plan")) if option != "--relations" else "build"
    words = [verb, "./nowhere", option, where, *(more if verb == "build" else [])]
    return Act(f"{option} {path.name}: {said}", lambda: command(*words))


def _written(tree: Any, suffix: str) -> bytes:
    """Rows as a file of that kind, however odd they are."""
    some = tree if isinstance(tree, list) else [tree]
    lines = "\n".join(json.dumps(row) for row in some).encode()
    if suffix in (".csv", ".tsv", ".txt"):
        out = io.StringIO()
        names = list(dict.fromkeys(str(name) for row in some if isinstance(row, dict) for name in row))
        writer = csv.writer(out, delimiter="\t" if suffix == ".tsv" else ",")
        writer.writerow(names)
        for row in some:
            cells = row.values() if isinstance(row, dict) else row if isinstance(row, list) else [row]
            writer.writerow([cell if isinstance(cell, str) else json.dumps(cell) for cell in cells])
        return out.getvalue().encode("utf-8", "surrogatepass")
    if suffix.endswith(".gz"):
        return gzip.compress(lines if "jsonl" in suffix else dumps(tree), 1, mtime=0)
    return dumps(tree) if suffix == ".json" else lines


GOOD_ROWS: dict[str, Any] = {
    "--data": [{"id": f"t{n}", "text": "the old river was wide", "register": "prose", "language": "en"} for n in range(3)],
    "--questions": rows(3),
    "stdin": [{"id": n, "question": "where was the river ?", "response": "old"} for n in range(3)],
    "--relations": [
        {"name": "capital", "category": "facts", "source": "me", "templates": ["{} is in {}"],
         "pairs": [["France", "Paris"], ["Spain", "Madrid"], ["Italy", "Rome"]]},
    ],
    "--steps": [
        {"question": f"Word {n}?", "subquestion": "how many ?", "answer": "three", "function": "retrieval"} for n in range(4)
    ],
}  # fmt: skip


# ---- models ----------------------------------------------------------------------------------------------------------


def models(dice: Random, scene: Scene, folder: Path) -> Act:
    """A model folder whose config, tokenizer or weights were changed."""
    files = dict(scene.model_files)
    name = dice.choice(("config.json",) * 4 + ("model.safetensors",) * 2 + tuple(files))
    files[name], said = _changed_file(dice, name, files[name])
    if dice.random() < 0.1:
        index, more = change_tree(
            dice, {"metadata": {"total_size": 9}, "weight_map": {"lm_head.weight": "model.safetensors"}}
        )
        files["model.safetensors.index.json"], said = dumps(index), f"{said}; an index: {more}"
        if dice.random() < 0.5:
            del files["model.safetensors"]
    where = _put_files(folder / "model", files)
    verb = dice.choice(("plan", "plan", "check"))
    return Act(f"{name}: {said} | {verb}", lambda: command(verb, where), codes=(0, 1, 2))


def ggufs(dice: Random, scene: Scene, folder: Path) -> Act:
    """A GGUF file with another header, other values or other bytes."""
    content, said = scene.gguf, []
    for _ in range(dice.choice((1, 1, 2))):
        if dice.random() < 0.5:  # the header: magic, version, number of tensors, number of values
            place, kind = dice.choice(((0, "<I"), (4, "<I"), (8, "<Q"), (16, "<Q"), (24, "<Q")))
            number = dice.choice((0, 1, 2, 3, 2**20, 2**31, 2**32 - 1, 2**63, 2**64 - 1)) % 2 ** (
                32 if kind == "<I" else 64
            )
            content = content[:place] + struct.pack(kind, number) + content[place + struct.calcsize(kind) :]
            said.append(f"{number} at byte {place}")
        elif dice.random() < 0.5:  # a value
            key = dice.choice(
                (b"llama.block_count", b"llama.embedding_length", b"llama.attention.head_count", b"tokens", b"merges")
            )
            place = content.find(key) + len(key)
            content = (
                content[:place]
                + struct.pack("<I", dice.choice((4, 8, 9, 99)))
                + struct.pack("<I", dice.choice((0, 7, 2**31)))
                + content[place + 8 :]
            )
            said.append(f"the value of {key.decode()}")
        else:
            short, more = change_bytes(dice, content[:6000])
            content = short + content[6000:]
            said.append(more)
    path = folder / "model.gguf"
    path.write_bytes(content)
    return Act(f"GGUF: {'; '.join(said)}", lambda: command("plan", path), codes=(0, 1, 2))


def adapters(dice: Random, scene: Scene, folder: Path) -> Act:
    """A PEFT adapter whose config, gates or weights were changed, on the model it belongs to."""
    files = dict(scene.adapter_files)
    name = dice.choice(sorted(files))
    files[name], said = _changed_file(dice, name, files[name])
    where = _put_files(folder / "adapter", files)
    words = ("check", scene.model_folder, "--adapter", where) if dice.random() < 0.7 else ("check", where)
    return Act(f"{name}: {said}", lambda: command(*words), codes=(0, 1, 2))


def _changed_file(dice: Random, name: str, content: bytes) -> tuple[bytes, str]:
    if name.endswith(".safetensors"):
        return _changed_safetensors(dice, content)
    return _changed_json(dice, json.loads(content))


def _put_files(folder: Path, files: Files) -> Path:
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder


FILES: dict[str, Draw] = {
    "atlas metadata": metadata,
    "attributes and provenance": origin,
    "arrays": arrays,
    "damaged atlases": damage,
    "malicious atlases": malicious,
    "detectors": detectors,
    "data files": data_files,
    "model folders": models,
    "GGUF files": ggufs,
    "adapters": adapters,
}
