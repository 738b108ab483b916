"""The page of the detection benchmark: one HTML file without scripts, which needs no network.

Numbers come from `analysis.DetectionBenchmark`, sentences from `analysis.describe_benchmark`, pictures from
`analysis.benchmark_figures`; nothing is computed here but ratios of memory. All text is escaped, pictures are data URLs, and a
Content-Security-Policy forbids everything else.

Cost: a second, most of it for drawing.
"""

from __future__ import annotations

import base64
import html
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import numpy as np

from headwise import __version__
from headwise.analysis import DetectionBenchmark, benchmark_figures, describe_benchmark
from headwise.analysis.detection_benchmark import LABELS, QUESTION, rows_of
from headwise.core.dims import COST_CLASS, QUESTION_SET
from headwise.core.files import write_output
from headwise.core.memory import in_bytes
from headwise.figures.drawing import render

if TYPE_CHECKING:
    import pandas as pd

STYLE = Path(__file__).parent / "assets" / "benchmark.css"
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; form-action 'none'; base-uri 'none'"
SHOWN = ("auroc", "auroc_within", "auprc", "prr", "ece", "gain", "gain_logprob")
SIGNED = ("gain", "gain_logprob")
ALPHA = 0.05
Memory = Mapping[str, Mapping[str, int]]


def write(found: DetectionBenchmark, path: str | os.PathLike[str], *, memory: Memory | None = None) -> Path:
    """Write the page.

    Args:
        found: from `pooled_benchmark`.
        path: the .html file.
        memory: set -> study -> bytes at most, where measured.

    Returns:
        The file.

    Examples:
        >>> from headwise.analysis import pooled_benchmark
        >>> write(pooled_benchmark({"first": uncertainty, "second": uncertainty}), folder / "bench.html").name
        'bench.html'
    """
    return write_output(path, "".join(_page(found, memory or {})))


def _page(found: DetectionBenchmark, memory: Memory) -> Iterator[str]:
    words = describe_benchmark(found)
    figures = benchmark_figures(found)
    title = html.escape(words.title)
    yield (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{title} · Headwise</title>\n'
        f'<meta http-equiv="Content-Security-Policy" content="{html.escape(POLICY)}">\n'
        f'<meta name="viewport" content="width=device-width">\n<style>\n{STYLE.read_text(encoding="utf-8")}</style>\n</head>\n'
        f'<body>\n<h1>{title}</h1>\n<p class="lede">{html.escape(words.short())}</p>\n<p>{_escaped(words.overview)}</p>\n'
    )
    yield f"<h2>Mean over sets</h2>\n{_scores(found.frame(), ranked=True)}"
    yield (
        '<p class="small">In brackets: 95 % intervals. Bold: the best score, or a gain with q &lt; 0.05. Times: seconds over a '
        "plain answer. Red: rows that see nothing of the model but its answer's length.</p>\n"
    )
    for name, figure in figures.items():
        picture = base64.b64encode(render(figure, ".svg")).decode()
        yield f"<h2>{html.escape(figure.title)}</h2>\n"
        yield f'<img src="data:image/svg+xml;base64,{picture}" alt="{html.escape(figure.alt)}" id="{name}">\n'
    points = "".join(f"<li>{html.escape(entry)}</li>" for entry in (*words.detail, *words.observations))
    yield f"<h2>What it shows</h2>\n<ul>{points}</ul>\n"
    yield f"<h2>What to keep in mind</h2>\n<p>{_escaped(words.caveats)}</p>\n"
    yield "<h2>Each set</h2>\n"
    for name in found.sets:
        one = found.table.sel({QUESTION_SET: name})
        counts = f"{int(one['n_wrong'])} wrong, {int(one['n_right'])} correct"
        yield f"<details><summary>{html.escape(name)} ({counts})</summary>\n{_scores(found.frame(name))}</details>\n"
    yield from _cost(found, memory)
    version = html.escape(__version__)
    yield f'<p class="small">Headwise {version}. The same numbers: results.csv, results.tex.</p>\n</body>\n</html>\n'


def _escaped(sentences: tuple[str, ...]) -> str:
    return " ".join(map(html.escape, sentences))


def _scores(frame: pd.DataFrame, *, ranked: bool = False) -> str:
    """A table of scores."""
    own = frame[frame["kind"] != QUESTION]
    best = {name: (own[name].min() if name == "ece" else own[name].max()) for name in SHOWN}
    head = [
        "score",
        *(LABELS[name] for name in SHOWN),
        *(["mean rank"] if ranked and "mean_rank" in frame else []),
        "times",
        "source",
    ]
    rows = []
    for name, row in rows_of(frame).items():
        cells = [html.escape(name), *(_interval(row, metric, best[metric]) for metric in SHOWN)]
        cells += [_number(row["mean_rank"], 1)] if ranked and "mean_rank" in frame else []
        cells += [_number(row["seconds_ratio"], 2), _source(str(row["paper"]), str(row["link"]))]
        kind = ' class="question"' if row["kind"] == QUESTION else ""
        rows.append(f"<tr{kind}>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>")
    header = "".join(f"<th>{html.escape(each)}</th>" for each in head)
    return f'<div class="scroll"><table><thead><tr>{header}</tr></thead><tbody>{"".join(rows)}</tbody></table></div>\n'


def _interval(row: Mapping[str, Any], metric: str, best: float) -> str:
    value, low, high = (float(row[f"{metric}{end}"]) for end in ("", "_low", "_high"))
    if not np.isfinite(value):
        return "–"
    sign = "+" if metric in SIGNED else ""
    text = f"{value:{sign}.3f}"
    best_row = value == best and row["kind"] != QUESTION
    stands_out = value > 0 and row[f"{metric}_q"] < ALPHA if metric in SIGNED else best_row
    text = (f"<strong>{text}</strong>" if stands_out else text).replace("-", "−")
    if not np.isfinite(low):
        return text
    return f'{text} <span class="interval">[{low:{sign}.3f}, {high:{sign}.3f}]</span>'.replace("[-", "[−").replace(
        " -", " −"
    )


def _number(value: float, digits: int) -> str:
    return f"{value:.{digits}f}" if np.isfinite(value) else "–"


def _source(paper: str, link: str) -> str:
    """The paper; a link only to the web."""
    if urlsplit(link).scheme not in ("http", "https"):
        return html.escape(paper)
    return f'<a href="{html.escape(link, quote=True)}" rel="noreferrer">{html.escape(paper.partition(",")[0])}</a>'


def _cost(found: DetectionBenchmark, memory: Memory) -> Iterator[str]:
    """Seconds per answer by what a score needs, and memory."""
    classes = [str(name) for name in found.table[COST_CLASS].values]
    rows = []
    for name in found.sets:
        seconds = found.table["seconds"].sel({QUESTION_SET: name}).values
        known = memory.get(name, {})
        peaks = [in_bytes(known[study]) if study in known else "–" for study in ("answers", "uncertainty")]
        cells = [html.escape(name), *(_number(float(each), 3) for each in seconds), *peaks]
        rows.append(f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>")
    titles = ["set", *(f"{one}, s" for one in classes), "peak memory of answering", "of all scores"]
    header = "".join(f"<th>{html.escape(each)}</th>" for each in titles)
    yield (
        "<h2>Cost per answer</h2>\n"
        f'<div class="scroll"><table><thead><tr>{header}</tr></thead><tbody>{"".join(rows)}</tbody></table></div>\n'
        '<p class="small">Seconds of a plain answer, and what comes on top: a pass over prompt and answer, asking for p(True), '
        "the contrast pair (p(True) included), the samples. Memory holds the weights; that of all scores also the detectors "
        "that are fitted.</p>\n"
    )
