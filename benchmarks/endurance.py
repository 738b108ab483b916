"""Does memory stay where it is over a long run? Many small batches of unlike lengths, under Spectrum and Profile.

A tiny Llama with random weights; each batch has a size and a length of its own, and some rows are padded, so that no
shape is seen often. As the studies do, a batch is an observation of its own, and a shard of batches is read together and
released. Printed at every tenth of the run: what torch has allocated on the device (on a CPU it does not say) and the
resident set of the process. The run is called flat when both grow by no more than 1 % from half-way to the end; kernels
are compiled and pools are filled before.

    python benchmarks/gpu.py --endurance 10000         (also without a GPU, with fewer batches)
    python benchmarks/endurance.py --answers 10000     (answers under `hw.watch`: finished, cancelled, closed and failed)
"""

from __future__ import annotations

import argparse
import gc
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from clock import resident
from tokenizers import Tokenizer, models
from torch import Tensor
from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedTokenizerFast

import headwise as hw
from headwise.seam import Observation, Structure
from headwise.watching import Prompt, TokenScore

LONGEST, LARGEST = 96, 4  # tokens and rows of a batch
SHARD = 20  # batches read together
VOCABULARY = 1000
FLAT = 0.01


class Mark(NamedTuple):
    """The state after so many batches."""

    batches: int
    allocated: float | None  # MB on the device; None: a CPU does not say
    resident: float  # MB of the process


def tiny_model(device: str) -> Any:
    """Two layers of four heads; random weights."""
    config = LlamaConfig(
        hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        vocab_size=VOCABULARY, head_dim=64,
    )  # fmt: skip
    model = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa")
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    return model.to(device=device, dtype=dtype).eval()


def unlike_batches(count: int, device: str) -> Iterator[tuple[Tensor, Tensor]]:
    """Ids and mask, (batch, token) each."""
    generator = torch.Generator().manual_seed(0)
    for _ in range(count):
        rows = int(torch.randint(1, LARGEST + 1, (), generator=generator))
        lengths = torch.randint(2, LONGEST + 1, (rows,), generator=generator)
        places = torch.arange(int(lengths.max()))
        ids = torch.randint(0, VOCABULARY, (rows, len(places)), generator=generator)
        yield ids.to(device), (places < lengths[:, None]).to(device)


def marks(batches: int, device: str) -> Iterator[Mark]:
    """Run all batches; a mark at every tenth of them."""
    structure = Structure(tiny_model(device))
    waiting: list[Observation] = []
    for done, (ids, valid) in enumerate(unlike_batches(batches, device), start=1):
        with torch.no_grad(), hw.observe(structure, hw.Spectrum(), hw.Profile((2, 3)), valid=valid) as seen:
            structure.decoder(input_ids=ids, use_cache=False)
        waiting.append(seen)
        due = done % max(1, batches // 10) == 0
        if len(waiting) == SHARD or due:
            for one in waiting:
                one["spectrum"], one["profile"]
            waiting.clear()
        if due:
            yield _mark(done, device)


def answer_marks(answers: int, device: str) -> Iterator[Mark]:
    """Generate so many answers under a watch; of nine, one is cancelled, one closed half-way, one fails in a callback."""
    words = Tokenizer(models.WordLevel({f"w{index}": index for index in range(VOCABULARY)}, unk_token="w0"))
    model = hw.load(tiny_model(device), tokenizer=PreTrainedTokenizerFast(tokenizer_object=words))
    hooked = _hooks(model)
    random = torch.Generator().manual_seed(0)

    def fail(event: TokenScore) -> None:
        raise InterruptedError

    watches = {"fail": hw.watch(model, "RAUQ", threshold=-1e9, on_alarm=fail), "": hw.watch(model, "RAUQ")}
    for done in range(1, answers + 1):
        length = int(torch.randint(2, LONGEST, (), generator=random))
        prompt = Prompt(tuple(torch.randint(0, VOCABULARY, (length,), generator=random).tolist()), max_new_tokens=6)
        fate = {3: "cancel", 6: "close", 0: "fail"}.get(done % 9, "")
        stream = watches["fail" if fate == "fail" else ""].stream(prompt)
        try:
            for event in stream:
                if event.index == 2 and fate == "cancel":
                    stream.cancel(0)
                if event.index == 2 and fate == "close":
                    stream.close()
        except InterruptedError:
            assert fate == "fail"
        assert _hooks(model) == hooked, "a generation left a hook on the model"
        if done % max(1, answers // 10) == 0:
            yield _mark(done, device)


def _hooks(model: hw.Model) -> int:
    return sum(len(module._forward_hooks) + len(module._forward_pre_hooks) for module in model.hf.modules())


def _mark(done: int, device: str) -> Mark:
    gc.collect()
    if device != "cuda":
        return Mark(done, None, resident())
    torch.cuda.synchronize()
    return Mark(done, torch.cuda.memory_allocated() / 1e6, resident())


def growth(found: list[Mark]) -> tuple[float | None, float]:
    """How much larger both are at the end than half-way, as a share.

    >>> growth([Mark(1, 8.0, 90.0), Mark(2, 10.0, 100.0), Mark(3, 10.0, 125.0)])
    (0.0, 0.25)
    """
    middle, last = found[len(found) // 2], found[-1]
    on_device = None
    if middle.allocated is not None and last.allocated is not None:
        on_device = last.allocated / middle.allocated - 1
    return on_device, last.resident / middle.resident - 1


def report(count: int, device: str, *, answers: bool = False) -> tuple[str, bool]:
    """The words and the table, and whether the run was flat."""
    found = []
    unit = "answers" if answers else "batches"
    for mark in (answer_marks if answers else marks)(count, device):
        found.append(mark)
        print(f"{mark.batches} {unit}: {_allocated(mark)} allocated, {mark.resident:.1f} MB resident", flush=True)
    on_device, here = growth(found)
    flat = max(on_device or 0.0, here) <= FLAT
    lines = [
        f"## Memory over {count:,} {unit} of unlike lengths", "",
        f"| {unit} | allocated on the device | resident set |", "|---|---|---|",
    ]  # fmt: skip
    lines += [f"| {one.batches:,} | {_allocated(one)} | {one.resident:,.1f} MB |" for one in found]
    grown = f"{here:+.2%} resident" if on_device is None else f"{on_device:+.2%} allocated, {here:+.2%} resident"
    lines += ["", f"From half-way to the end: {grown}: {'flat' if flat else 'NOT flat'}."]
    return "\n".join(lines), flat


def _allocated(mark: Mark) -> str:
    return "unknown" if mark.allocated is None else f"{mark.allocated:.3f} MB"


def main() -> None:
    """Print the report; exit code 1 where memory grew."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--answers", type=int, default=10_000, help="answers generated under a watch")
    options = parser.parse_args()
    text, flat = report(options.answers, "cuda" if torch.cuda.is_available() else "cpu", answers=True)
    print(text)
    raise SystemExit(not flat)


if __name__ == "__main__":
    main()
