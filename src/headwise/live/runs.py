"""The last prompt runs of a session, and their results as JSON with figures.

A run holds the prompt, the generated answer and the next-token distributions, so that `what_if` compares with what was shown
and not with a second run. The last few runs are retained; older ids raise a DataError.

The figures are those of an atlas (`figures`), drawn by the same code: a grid with every head's small map, layers along its
longer side, then one layer x head map per profile statistic. The grid's scale ends where nearly all cells lie, as in study
`patterns`.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from headwise.core.dims import EXAMPLE, STATISTIC, head_name
from headwise.core.errors import DataError
from headwise.figures import Axis, Figure, Heatmap, Scale, ScaleMark, Tiles, scale_over, to_payload
from headwise.figures.tiles import scale_end, to_levels
from headwise.live.answer_scores import LiveScore
from headwise.live.effects import HeadFactors, NextTokenReading
from headwise.live.generation import Generation, LivePrompt, next_tokens
from headwise.live.response_schemas import Continuation, RunResult, TokenInfo, json_matrix, json_number
from headwise.model import Model, readable_tokens
from headwise.studies.answers.endings import text_of
from headwise.studies.decoding import Ids
from headwise.studies.profile.measure import STATISTIC_INFO

__all__ = ["PromptRun", "RunHistory", "continuation", "run_figures", "run_result", "token_infos"]


MAX_RUNS = 6  # retained
STATISTICS_SHOWN = {  # -> what their scale is of
    "sink": "Attention weight on the first token",
    "entropy": "Entropy relative to uniform attention",
    "previous": "Attention weight on the previous token",
    "diagonal": "Attention weight on the token itself",
    "induction": "Attention weight on tokens that followed an earlier occurrence",
    "distance": "Mean attention distance, in tokens",
    "top1": "Largest weight of a row",
    "output_norm_ratio": "Output norm over residual-stream norm",
}
UNBOUNDED = ("distance", "output_norm_ratio")


@dataclass(frozen=True)
class PromptRun:
    """One prompt and the model's answer, with or without scaled heads."""

    id: str
    prompt: LivePrompt
    changes: HeadFactors
    limit: int  # maximum tokens of the answer; 0: no answer was requested
    next: Tensor  # (vocabulary,) log-probabilities at the prompt's end
    generation: Generation
    scores: Mapping[str, LiveScore]  # of its answers

    @property
    def ids(self) -> Ids:
        """Prompt and answer."""
        return self.prompt.ids + self.generation.ids

    def reading(self) -> NextTokenReading:
        """For comparison with another state of the model."""
        answer = torch.stack(self.generation.before) if self.generation.ids else torch.empty(0, len(self.next))
        return NextTokenReading(self.next, answer, self.generation.ids)


class RunHistory:
    """The last runs, by id; `on_evict` is called with the ids of evicted runs. Thread-safe."""

    def __init__(self, on_evict: Callable[[str], None], max_runs: int = MAX_RUNS):
        self._on_evict, self._max_runs = on_evict, max_runs
        self._lock = threading.Lock()
        self._runs: OrderedDict[str, PromptRun] = OrderedDict()

    def add(self, run: PromptRun) -> None:
        """Retain one more."""
        with self._lock:
            self._runs[run.id] = run
            evicted = [self._runs.popitem(last=False)[0] for _ in range(len(self._runs) - self._max_runs)]
        for name in evicted:
            self._on_evict(name)

    def __getitem__(self, name: str) -> PromptRun:
        with self._lock:
            if name not in self._runs:
                raise DataError("this run is no longer in memory (only the last few are); run the prompt again")
            self._runs.move_to_end(name)
            return self._runs[name]


def run_result(model: Model, run: PromptRun, maps: xr.Dataset, profile: xr.Dataset, seconds: float) -> RunResult:
    """A run as JSON."""
    numbers, uniform = profile["value"].isel({EXAMPLE: 0}), profile["uniform"].isel({EXAMPLE: 0})
    names = [str(name) for name in profile[STATISTIC].values]
    return {
        "id": run.id,
        "mode": run.prompt.mode,
        "text": run.prompt.text,
        "changes": run.changes,
        "layers": model.card.layers,
        "heads": model.card.heads,
        "layers_without_heads": {str(i): card.reason for i, card in enumerate(model.card.per_layer) if card.reason},
        "tokens": token_infos(model, run.prompt.ids, run.generation.ids),
        "prompt_tokens": len(run.prompt.ids),
        "answer": text_of(model, run.generation.ids),
        "finished": run.generation.finished,
        "logprob": run.generation.logprob if run.generation.ids else None,
        "next": next_tokens(model, run.next),
        "steps": run.generation.steps,
        "scores": run.generation.scores,
        "figures": run_figures(maps["maps"].isel({EXAMPLE: 0}).values, numbers, uniform, len(run.ids)),
        "numbers": {name: json_matrix(numbers.sel({STATISTIC: name}).values) for name in names},
        "uniform": {name: json_number(float(uniform.sel({STATISTIC: name}).mean())) for name in names},
        "seconds": seconds,
    }


def continuation(model: Model, next_token: Tensor, generation: Generation) -> Continuation:
    """What the model generates in one state."""
    return {
        "answer": text_of(model, generation.ids),
        "tokens": token_infos(model, (), generation.ids),
        "finished": generation.finished,
        "next": next_tokens(model, next_token),
        "steps": generation.steps,
        "scores": generation.scores,
    }


def token_infos(model: Model, prompt: Ids, answer: Ids) -> list[TokenInfo]:
    """Every token of prompt and answer."""
    special = set(model.tokenizer.all_special_ids) if model.tokenizer is not None else set()
    ids = (*prompt, *answer)
    return [
        {"text": text, "special": token in special, "generated": index >= len(prompt)}
        for index, (token, text) in enumerate(zip(ids, readable_tokens(model.tokenizer, ids), strict=True))
    ]


def run_figures(maps: np.ndarray, numbers: xr.DataArray, uniform: xr.DataArray, tokens: int) -> list[dict[str, Any]]:
    """Key, label and payload per figure, the grid first. `maps` (layer, head, row, column), NaN where masked."""
    found = [{"key": "maps", "label": "Maps", "payload": to_payload(map_grid(maps, tokens))}]
    for key, unit in STATISTICS_SHOWN.items():
        values = numbers.sel({STATISTIC: key}).values
        if np.isfinite(values).any():
            level = float(uniform.sel({STATISTIC: key}).mean())
            figure = statistic_map(key, unit, values, level)
            found.append({"key": key, "label": STATISTIC_INFO[key][0], "payload": to_payload(figure)})
    return found


def map_grid(maps: np.ndarray, tokens: int) -> Figure:
    """One tile per head."""
    layers, heads, cells, _ = maps.shape
    high = scale_end(maps)
    across = layers >= heads  # layers along the columns
    order = [(layer, head) for head in range(heads) for layer in range(layers)]
    order = order if across else [(layer, head) for layer in range(layers) for head in range(heads)]
    numbered = {size: tuple(map(str, range(size))) for size in (layers, heads)}
    sides = (("Head", numbered[heads]), ("Layer", numbered[layers]))
    (rows, row_labels), (columns, column_labels) = sides if across else sides[::-1]
    pooled = f"; {tokens} tokens in {cells} cells per side, maximum weight of each" if tokens > cells else ""
    return Figure(
        title="Every head’s attention map",
        panels=(
            Tiles(
                key="maps", title="", names=tuple(head_name(*head) for head in order), scale="weight",
                levels=to_levels(np.stack([maps[head] for head in order]), 0.0, high),
                columns=layers if across else heads, row_name=rows, row_labels=row_labels,
                column_name=columns, column_labels=column_labels,
            ),
        ),
        columns=1,
        scales={"weight": Scale("Attention weight", 0.0, high, "Blues", over=bool(np.nanmax(maps) > high * 1.001))},
        notes=(f"Rows are queries, columns are keys{pooled}. Hatched: masked.",),
        alt=f"Attention maps of {layers * heads} heads",
    )  # fmt: skip


def statistic_map(key: str, unit: str, values: np.ndarray, level: float) -> Figure:
    """One number per head, (layer, head), with the value of uniform attention marked on the colour bar."""
    marks = (ScaleMark(level, "uniform attention"),) if np.isfinite(level) else ()
    bounded = key not in UNBOUNDED
    scale = scale_over(values, unit, ceiling=1.0 if bounded else None, clip=1.0 if bounded else 0.98, marks=marks)
    layers, heads = (tuple(map(str, range(size))) for size in values.shape)
    across = len(layers) >= len(heads)
    x, y = (Axis("Layer", layers), Axis("Head", heads)) if across else (Axis("Head", heads), Axis("Layer", layers))
    panel = Heatmap(key=key, title="", values=values.T if across else values, x=x, y=y, scale=key)
    return Figure(unit, (panel,), 1, {key: scale}, alt=f"{unit}, one cell per head")
