"""How long does the API hold, and how fast is it? A `headwise serve --api` in a process of its own, and many clients.

    python benchmarks/soak_api.py soak --minutes 10                      16 clients, a tiny random model
    python benchmarks/soak_api.py soak --minutes 60 --model default      the default model
    python benchmarks/soak_api.py speed --page                           tokens per second at 1, 4 and 16 clients, default model

A client of the soak draws by dice: an answer (whole or streamed), a stream that it leaves after a few tokens, a request that it
gives up at once, one that is malformed, one that is refused. Greedy answers are compared with what the same server answered
when nobody else asked. At the end

    every request has the status it must have, and every stream its [DONE]                    otherwise it is lost
    no answer is that of another prompt                                                       mixed up
    the server's counters add up: accepted = ended, generated >= received, nothing waits or runs
    memory is flat: Growth (benchmarks/growth.py) of the resident set over requests

Prints JSON; ends with 1 if anything did not hold. An answer that differs in a late token from the one alone is counted, not
failed: sums of a larger batch are rounded otherwise, and the most likely of two nearly equal tokens may change.

Speed: clients ask for completions of a fixed length from packaged questions, one after the other, greedy; after two
requests to warm up. The same prompts are also given to the model's own `generate`, one by one and in padded batches.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import httpx
from growth import Growth, Sample
from page import made_by, write_section
from planted import save_tiny
from synthetic.atlas import synthetic_atlas

import headwise as hw
from headwise.corpora import packaged_questions
from headwise.model import DEFAULT

CODE = "import sys; sys.argv[0] = 'headwise'; from headwise.cli.main import main; main()"
CLIENTS, BATCH, QUEUE = 16, 8, 32
WORDS = ("the", "old", "river", "house", "door", "was", "light")
PROMPTS = [" ".join(random.Random(seed).choices(WORDS, k=2 + seed % 9)) for seed in range(60)]
KINDS = {"answer": 8, "stream": 8, "leave": 3, "give up": 2, "malformed": 2, "refused": 2}
MALFORMED = (b"{", b'{"model": 5}', b'{"model": "\\ud800"}', b"[]", b'{"prompt": "x", "model": "no"}', b"\xff\xfe")
SAMPLE_SECONDS = 1.0


@contextmanager
def server(model: str, score: str) -> Iterator[tuple[str, str]]:
    """A server of its own process: its address, and the name of its model."""
    with tempfile.TemporaryDirectory() as folder:
        atlas = synthetic_atlas(Path(folder) / "atlas").location.address
        if model == "tiny":
            model = str(save_tiny(Path(folder) / "tiny", layers=3))
        elif model == "default":
            model = DEFAULT
        limits = ["--max-batch", str(BATCH), "--max-queue", str(QUEUE)]
        command = [
            sys.executable,
            "-c",
            CODE,
            "serve",
            atlas,
            "--api",
            "--score",
            score,
            "--model",
            model,
            "--port",
            "0",
        ]
        process = subprocess.Popen([*command, *limits], stdout=subprocess.PIPE, text=True)
        try:
            assert process.stdout is not None
            where = process.stdout.readline().split()[0]
            while httpx.get(f"{where}health").json()["status"] == "loading":
                time.sleep(0.2)
            yield where, httpx.get(f"{where}v1/models").json()["data"][0]["id"]
        finally:
            process.terminate()
            process.wait(30)


def counters(text: str) -> dict[str, float]:
    """The metrics of a server."""
    lines = [line.rpartition(" ") for line in text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in lines}


class Soak:
    """Clients of a server, and what they saw."""

    def __init__(self, where: str, model: str, seed: int):
        self.where, self.model, self.dice = where, model, random.Random(seed)
        self.alone: dict[tuple[str, int], str] = {}
        self.seen: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.received = 0  # tokens
        self.samples: list[Sample] = []
        self.begun = time.monotonic()

    def asked(self, prompt: str, tokens: int, **more: Any) -> dict[str, Any]:
        """The body of a request."""
        return {"model": self.model, "prompt": prompt, "max_tokens": tokens, "temperature": 0, **more}

    async def run(self, minutes: float) -> None:
        """Everything."""
        async with httpx.AsyncClient(base_url=self.where, timeout=120, limits=httpx.Limits(max_connections=64)) as http:
            for prompt in PROMPTS:
                tokens = 4 + len(prompt) % 20
                reply = await http.post("/v1/completions", json=self.asked(prompt, tokens))
                self.alone[prompt, tokens] = reply.json()["choices"][0]["text"]
                self.received += reply.json()["usage"]["completion_tokens"]
                self.seen["alone"] += 1
            self.begun = time.monotonic()
            deadline = self.begun + 60 * minutes
            watching = asyncio.create_task(self._watch(http))
            await asyncio.gather(*(self._client(http, deadline) for _ in range(CLIENTS)))
            watching.cancel()
            await self._settled(http)

    async def _watch(self, http: httpx.AsyncClient) -> None:
        while True:
            found = counters((await http.get("/metrics")).text)
            resident = found["process_resident_memory_bytes"] / 1e6
            self.samples.append(Sample(time.monotonic() - self.begun, self.seen.total(), resident))
            await asyncio.sleep(SAMPLE_SECONDS)

    async def _client(self, http: httpx.AsyncClient, deadline: float) -> None:
        while time.monotonic() < deadline:
            kind = self.dice.choices(list(KINDS), list(KINDS.values()))[0]
            try:
                await getattr(self, f"_{kind.replace(' ', '_')}")(http)
            except Exception as error:
                self.wrong.append(f"{kind}: {type(error).__name__}: {error}")
            self.seen[kind] += 1

    async def _answer(self, http: httpx.AsyncClient) -> None:
        prompt, tokens = self.dice.choice(list(self.alone))
        reply = await http.post("/v1/completions", json=self.asked(prompt, tokens))
        reply.raise_for_status()
        self.received += reply.json()["usage"]["completion_tokens"]
        self._compare(prompt, tokens, reply.json()["choices"][0]["text"])

    async def _stream(self, http: httpx.AsyncClient) -> None:
        prompt, tokens = self.dice.choice(list(self.alone))
        body = self.asked(prompt, tokens, stream=True, stream_options={"include_usage": True})
        parts, last = [], ""
        async with http.stream("POST", "/v1/completions", json=body) as reply:
            reply.raise_for_status()
            async for line in reply.aiter_lines():
                last = line or last
                if line.startswith("data: {"):
                    chunk = json.loads(line[6:])
                    parts += [choice["text"] for choice in chunk["choices"]]
                    self.received += chunk["usage"]["completion_tokens"] if chunk["usage"] else 0
        if last != "data: [DONE]":
            self.wrong.append(f"stream: it ended with {last[:80]}")
        self._compare(prompt, tokens, "".join(parts))

    async def _leave(self, http: httpx.AsyncClient) -> None:
        body, tokens = self.asked(self.dice.choice(PROMPTS), 200, stream=True), self.dice.randrange(8)
        async with http.stream("POST", "/v1/completions", json=body) as reply:
            reply.raise_for_status()
            async for _ in reply.aiter_lines():
                tokens -= 1
                if tokens < 0:
                    return

    async def _give_up(self, http: httpx.AsyncClient) -> None:
        body = self.asked(self.dice.choice(PROMPTS), 200)
        try:
            await http.post("/v1/completions", json=body, timeout=self.dice.uniform(0.005, 0.1))
        except httpx.TimeoutException:
            self.seen["gave up"] += 1

    async def _malformed(self, http: httpx.AsyncClient) -> None:
        headers = {"content-type": "application/json"}
        reply = await http.post("/v1/completions", content=self.dice.choice(MALFORMED), headers=headers)
        self._expect(reply, 400, 404)

    async def _refused(self, http: httpx.AsyncClient) -> None:
        more: dict[str, Any] = self.dice.choice(
            [{"tools": 5, "echo": True}, {"n": 99}, {"top_k": 3}, {"max_tokens": 10**6}]
        )
        self._expect(await http.post("/v1/completions", json=self.asked("the", 3) | more), 400)

    def _expect(self, reply: httpx.Response, *statuses: int) -> None:
        if reply.status_code not in statuses or "message" not in reply.json()["error"]:
            self.wrong.append(f"{reply.status_code}: {reply.text[:100]}")

    def _compare(self, prompt: str, tokens: int, text: str) -> None:
        own = self.alone[prompt, tokens]
        if text == own:
            return
        self.seen["differs in a late token"] += 1
        if text.split()[:1] != own.split()[:1]:
            self.wrong.append(f"mixed up: {prompt!r} was answered {text!r}, alone {own!r}")

    async def _settled(self, http: httpx.AsyncClient) -> None:
        """The counters, once nothing runs."""
        for _ in range(100):
            found = counters((await http.get("/metrics")).text)
            if not (found["headwise_answers_waiting"] or found["headwise_answers_running"]):
                break
            await asyncio.sleep(0.1)
        self.counted = found
        ended = sum(value for name, value in found.items() if re.match(r"headwise_answers_total\b", name))
        if found["headwise_answers_accepted_total"] != ended:
            self.wrong.append(f"{found['headwise_answers_accepted_total']} answers were accepted, {ended} have ended")
        if found.get('headwise_answers_total{finished="failed"}', 0):
            self.wrong.append("answers failed in the engine")
        if found["headwise_answers_waiting"] or found["headwise_answers_running"]:
            self.wrong.append("something waits or runs although nobody asks")
        if found["headwise_generated_tokens_total"] < self.received:
            self.wrong.append("more tokens were received than generated")

    def summary(self) -> dict[str, Any]:
        """What happened, as JSON."""
        growth = Growth(self.samples, self.samples[-1].examples, max(one.resident for one in self.samples))
        if not growth.flat:
            self.wrong.append("memory is not flat")
        slope, low, high = growth.slope
        return {
            "minutes": round((time.monotonic() - self.begun) / 60, 2),
            "clients": CLIENTS,
            "requests": self.seen.total() - self.seen["differs in a late token"] - self.seen["gave up"],
            "seen": dict(self.seen),
            "answers": {name: value for name, value in self.counted.items() if re.match(r"headwise_answers_(?!created)", name)},
            "generated_tokens": self.counted["headwise_generated_tokens_total"],
            "memory_mb": {
                "first": self.samples[0].resident, "last": self.samples[-1].resident, "highest": growth.peak,
                "per_1000_requests": [round(slope, 3), round(low, 3), round(high, 3)],
                "at_tenths": [round(growth.near(tenth / 10).resident, 1) for tenth in range(1, 11)],
            },
            "wrong": self.wrong[:20],
        }  # fmt: skip


# ---- speed ----------------------------------------------------------------------------------------------------------


class Speed(NamedTuple):
    """Of one case."""

    wall: float  # tokens per second
    processor: float  # tokens per second of processor time, which says more where other programs run


async def api_speed(where: str, model: str, prompts: list[str], tokens: int, clients: int) -> Speed:
    """Completions of these prompts by so many clients at once."""
    left = iter(prompts)
    received = 0

    async def client(http: httpx.AsyncClient) -> None:
        nonlocal received
        for prompt in left:
            body = {"model": model, "prompt": prompt, "max_tokens": tokens, "temperature": 0, "stream": True}
            body["stream_options"] = {"include_usage": True}
            async with http.stream("POST", "/v1/completions", json=body) as reply:
                async for line in reply.aiter_lines():
                    if line.startswith("data: {") and (usage := json.loads(line[6:])["usage"]):
                        received += usage["completion_tokens"]

    async def used(http: httpx.AsyncClient) -> float:
        return counters((await http.get("/metrics")).text)["process_cpu_seconds_total"]

    async with httpx.AsyncClient(base_url=where, timeout=600, limits=httpx.Limits(max_connections=64)) as http:
        before, begun = await used(http), time.perf_counter()
        await asyncio.gather(*(client(http) for _ in range(clients)))
        return Speed(received / (time.perf_counter() - begun), received / (await used(http) - before))


def generate_speed(model: hw.Model, prompts: list[str], tokens: int, batch: int) -> Speed:
    """The same prompts by `generate`, in padded batches; tokens up to the end of each answer count."""
    begun, before, received = time.perf_counter(), time.process_time(), 0
    for start in range(0, len(prompts), batch):
        inputs = model.encode(prompts[start : start + batch], padding_side="left")
        found = model.generate(**inputs, max_new_tokens=tokens, do_sample=False, pad_token_id=model.pad_id)
        new = found[:, inputs["input_ids"].shape[1] :]
        received += int((new != model.pad_id).sum())
    return Speed(received / (time.perf_counter() - begun), received / (time.process_time() - before))


def speed(count: int, tokens: int, score: str) -> str:
    """The table of tokens per second."""
    prompts = [f"Question: {one.question}\nAnswer:" for one in packaged_questions().sample(count).items]
    rows: list[tuple[str, Speed]] = []
    with server("default", score) as (where, model):
        asyncio.run(api_speed(where, model, prompts[:2], 4, 2))  # to warm up
        for clients in (1, 4, 16):
            name = "API, 1 client" if clients == 1 else f"API, {clients} clients"
            rows.append((name, asyncio.run(api_speed(where, model, prompts, tokens, clients))))
    loaded = hw.load()
    generate_speed(loaded, prompts[:2], 4, 2)
    for batch in (1, 4, 8):
        rows.append((f"`generate`, batches of {batch}", generate_speed(loaded, prompts, tokens, batch)))
    lines = ["| case | tokens per second | tokens per second of processor time |", "|---|--:|--:|"]
    return "\n".join([*lines, *(f"| {name} | {one.wall:.1f} | {one.processor:.1f} |" for name, one in rows)])


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=["soak", "speed"])
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--model", default="tiny", help="of the soak: tiny, default, or what headwise.load takes")
    parser.add_argument("--score", default="RAUQ", help="a score that needs no fit")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--prompts", type=int, default=32, help="of the speed")
    parser.add_argument("--tokens", type=int, default=64, help="of the speed: of each answer")
    parser.add_argument("--page", action="store_true", help="of the speed: write the table into docs/benchmarks.md")
    chosen = parser.parse_args()
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    if chosen.what == "speed":
        command = f"python benchmarks/soak_api.py speed --prompts {chosen.prompts} --tokens {chosen.tokens}"
        table = speed(chosen.prompts, chosen.tokens, chosen.score)
        print(table)
        if chosen.page:
            write_section("api", SPEED_TEXT.format(table=table, made=made_by(command), tokens=chosen.tokens))
        return
    with server(chosen.model, chosen.score) as (where, model):
        soak = Soak(where, model, chosen.seed)
        asyncio.run(soak.run(chosen.minutes))
    print(json.dumps(soak.summary(), indent=2))
    sys.exit(bool(soak.wrong))


SPEED_TEXT = """## The API: SmolLM2-135M-Instruct, float32, on a CPU

Tokens per second of `headwise serve --api` (a batch of at most 8, RAUQ watched), streamed to so many clients that ask one after
the other for greedy answers of {tokens} tokens at most, next to the model's own `generate` without any observation. One run of
each case.

{table}

{made}
"""


if __name__ == "__main__":
    main()
