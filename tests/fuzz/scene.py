"""Good inputs, of which the cases are changed copies. Everything is made when it is first needed, and kept."""

from __future__ import annotations

import asyncio
import json
import shutil
import threading
import weakref
from contextlib import suppress
from functools import cache, cached_property
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np
import xarray as xr
from answered import rows
from planted import save_tiny, tiny_model
from planted_gguf import write_gguf
from synthetic.atlas import MAKERS, RECORD, salience_dataset
from synthetic.origin import provenance

from headwise.atlas import Atlas
from headwise.atlas.decoding import digest
from headwise.atlas.encoding import encode_files
from headwise.atlas.format import ATTRS, ConsolidatedMetadata

__all__ = ["STUDIES", "Files", "Scene", "Served", "listed", "put"]

Files = dict[str, bytes]
STUDIES = (*MAKERS, "salience", "answers")
LAYERS, HEADS = 3, 2


class Scene:
    """The inputs, below one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @cache  # noqa: B019  (one scene per process)
    def dataset(self, study: str) -> xr.Dataset:
        """A study as it should be."""
        if study == "answers":
            return self._answers
        made = salience_dataset(LAYERS, HEADS) if study == "salience" else MAKERS[study](LAYERS, HEADS)
        return made.assign_attrs({"record": json.dumps(RECORD.get(study, [])), "title": study, **made.attrs})

    @cache  # noqa: B019
    def files(self, study: str) -> Files:
        """The same as files."""
        return encode_files(self.dataset(study))

    @cached_property
    def atlas(self) -> Path:
        """A good atlas of some studies."""
        return put(
            self.folder / "good", {name: self.files(name) for name in ("profile", "detection", "relations", "answers")}
        )

    @cached_property
    def head_table(self) -> Any:
        """Its head table."""
        return Atlas.open(self.atlas).heads()

    @cached_property
    def model_folder(self) -> Path:
        """A tiny Llama."""
        return save_tiny(self.folder / "tiny", layers=LAYERS, heads=HEADS, kv_heads=1)

    @cached_property
    def model_files(self) -> Files:
        """Its files."""
        return {path.name: path.read_bytes() for path in self.model_folder.iterdir()}

    @cached_property
    def gguf(self) -> bytes:
        """Another as a GGUF file."""
        return write_gguf(self.folder / "tiny.gguf").read_bytes()

    @cached_property
    def adapter_files(self) -> Files:
        """A LoRA adapter of the tiny model, with gates."""
        import peft
        from transformers import AutoModelForCausalLM

        from headwise.model.gate import write_gate

        folder = self.folder / "adapter"
        config = peft.LoraConfig(r=2, target_modules=["q_proj"], init_lora_weights=False, task_type="CAUSAL_LM")
        peft.get_peft_model(AutoModelForCausalLM.from_pretrained(self.model_folder), config).save_pretrained(folder)
        write_gate(folder, 0.0, model=str(self.model_folder))
        return {path.name: path.read_bytes() for path in folder.iterdir() if path.suffix in (".json", ".safetensors")}

    @cached_property
    def features(self) -> dict[str, np.ndarray]:
        """What a detector is fitted on."""
        generator = np.random.default_rng(0)
        return {"spectrum": generator.normal(size=(80, LAYERS, HEADS)), "length": generator.normal(size=80)}

    @cached_property
    def detector(self) -> tuple[dict[str, Any], bytes]:
        """A fitted detector: its JSON, and its arrays."""
        from headwise.probes import Detector

        path = self.folder / "detector"
        Detector(folds=2).fit(self.features, np.arange(80) % 2 == 0).save(path)
        return json.loads(Path(f"{path}.json").read_bytes()), Path(f"{path}.safetensors").read_bytes()

    @cached_property
    def served(self) -> Served:
        """A server of the good atlas with a model."""
        from headwise.live import LiveSession
        from headwise.model import load
        from headwise.server import create_app

        session = LiveSession(load(*tiny_model(layers=LAYERS, heads=HEADS, kv_heads=1)))
        served = Served(create_app([self.atlas], open_session=lambda: session))
        while served.ask("GET", b"/api/good/live").json()["state"] != "ready":
            pass
        return served

    @cached_property
    def _answers(self) -> xr.Dataset:
        from headwise.corpora import Question, Questions
        from headwise.engines import Shard
        from headwise.model import load
        from headwise.studies.answers.measure import prepare
        from headwise.studies.inputs import StudyInputs

        items = [
            Question(row["id"], row["question"], ("gold",), response=row["response"], label=row["label"])
            for row in rows(6)
        ]
        run = prepare(
            load(*tiny_model(layers=LAYERS, heads=HEADS, kv_heads=1)),
            StudyInputs(questions_source=Questions("mine", tuple(items))),
        )
        made = run.finalize([run.measure(Shard(0, 0, run.examples))])["answers"]
        parameters = run.provenance.parameters
        return made.assign_attrs(
            provenance=provenance("answers", LAYERS, HEADS, data="mine", size=6, parameters=parameters)
        )


# ---- atlases ---------------------------------------------------------------------------------------------------------


def listed(studies: dict[str, Files]) -> dict[str, Any]:
    """The consolidated metadata of these studies, whatever they hold."""
    nodes: dict[str, Any] = {}
    for study, files in studies.items():
        for key, content in files.items():
            if key.endswith("zarr.json"):
                with suppress(ValueError, RecursionError):
                    nodes["/".join([study, *key.split("/")[:-1]])] = json.loads(content)
    versions = {study: {"sha256": digest(files)} for study, files in studies.items()}
    root = json.loads(ConsolidatedMetadata(ATTRS | {"versions": versions}, {}).to_bytes())
    root["consolidated_metadata"]["metadata"] = nodes
    return root


def put(folder: Path, studies: dict[str, Files], root: bytes | None = None) -> Path:
    """Write an atlas, without waiting for the disk."""
    shutil.rmtree(folder, ignore_errors=True)
    for study, files in studies.items():
        for key, content in files.items():
            path = folder / study / key
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
    folder.mkdir(exist_ok=True)
    (folder / "zarr.json").write_bytes(json.dumps(listed(studies)).encode() if root is None else root)
    return folder


# ---- the server ------------------------------------------------------------------------------------------------------


class Answer:
    """What a server sent."""

    def __init__(self) -> None:
        self.status, self.headers, self.body = 0, dict[str, str](), b""

    def json(self) -> Any:
        """The body."""
        return json.loads(self.body)


class Served:
    """An application, asked as uvicorn asks it: any bytes, no client that would tidy them."""

    def __init__(self, app: Any) -> None:
        self.app, self.loop = app, asyncio.new_event_loop()
        weakref.finalize(self, self.loop.close)

    def ask(
        self,
        method: str,
        target: bytes,
        headers: tuple[tuple[bytes, bytes], ...] | None = None,
        body: tuple[bytes, ...] = (),
    ) -> Answer:
        """One request; what the application raises passes."""
        raw, _, query = target.partition(b"?")
        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "scheme": "http",
            "path": unquote(raw.decode("ascii", "replace")), "raw_path": raw, "query_string": query, "root_path": "",
            "headers": list(((b"host", b"127.0.0.1:8000"),) if headers is None else headers), "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 8000), "state": {},
        }  # fmt: skip
        parts = [
            {"type": "http.request", "body": part, "more_body": n + 1 < len(body)}
            for n, part in enumerate(body or (b"",))
        ]
        answer = Answer()

        async def receive() -> dict[str, Any]:
            if parts:
                return parts.pop(0)
            await asyncio.sleep(3600)
            raise AssertionError

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                answer.status = message["status"]
                answer.headers = {name.decode().lower(): value.decode("latin-1") for name, value in message["headers"]}
            else:
                answer.body += message.get("body", b"")

        raised: list[BaseException] = []

        def run() -> None:
            try:
                self.loop.run_until_complete(self.app(scope, receive, send))
            except BaseException as error:
                raised.append(error)

        thread = threading.Thread(target=run, daemon=True)  # of its own: Playwright leaves a loop running in the tests'
        thread.start()
        thread.join()
        if raised:
            raise raised[0]
        return answer
