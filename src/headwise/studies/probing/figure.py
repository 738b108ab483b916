"""The figure of the probing study: at which layer and token can a probe detect that the answer is wrong?

``kind="tokens"``: a layer x token map, layer 0 at the top, the fifteen tokens in the order of the text; each cell the
held-out AUROC of a probe, 0.5 to 1.0. A black frame stands around the exact-answer columns over the layers within 0.02
of the best of them (or the columns and layers the caller gives), a ring at the best cell. Next to it the attention that each
of these tokens receives, so that "attended" and "informative" can be compared; ``style="paper"`` leaves that map and the ring
out. ``"within"``: the same map next to the one in which only answers to questions that are alike are compared. ``"heads"``:
layer x head, probes on each head's output at the exact answer, both ways. ``"transfer"``: fitted on one group of topics,
tested on another, raw and minus log-probability. ``"table"``: probes and baselines.

Source: Orgad et al., arXiv 2410.02707, Figure 2. The site is named in every title: theirs is the MLP's input.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import xarray as xr

from headwise.core.dims import DETECTOR, HEAD, LAYER, SITE, TOKEN, TOPIC, TRAINED_ON, head_name
from headwise.core.errors import StudyError, did_you_mean
from headwise.core.parsing import parse_attribute
from headwise.core.schema import INTERVAL_ENDS
from headwise.figures.figure import Figure
from headwise.figures.matrices import letter_note, short_names
from headwise.figures.panels import Axis, Category, Frame, Guide, Heatmap, Intervals, Mark, Panel
from headwise.figures.provenance import cell_names
from headwise.figures.scale import Scale, ScaleMark, scale_around, scale_over
from headwise.stats.auroc import CHANCE
from headwise.studies.spec import FigureVariant

SITE_LABELS = {
    "mlp_in": "MLP input",
    "mlp_out": "MLP output",
    "attention_out": "Attention output",
    "residual": "Residual stream",
}
SITE_NAMES = {
    "mlp_in": "MLP input",
    "mlp_out": "MLP output",
    "attention_out": "attention output",
    "residual": "residual stream",
}
EXACT = "exact_answer"  # columns of the exact answer begin so
EXTRAS = ("low", "high", "p", "q", "null_high")
N_HEADS_LISTED = 12
TABLE_KINDS = {  # of rows, with label and colour
    "supervised": ("probe", "#31688e"),
    "score": ("score", "#7a7a7a"),
    "question": ("question alone", "#c2902b"),
}


def figure(
    dataset: xr.Dataset,
    *,
    kind: str = "tokens",
    site: str | None = None,
    positions: Iterable[str] | str | None = None,
    layers: str | None = None,
    frame: Iterable[str] | str | None = None,
    style: str = "full",
) -> Figure:
    """One of the maps.

    `site`: of those probed, the first by default; `positions`: some of the fifteen tokens; `frame`: the tokens to frame, by
    default those of the exact answer; `layers`: the range to frame, such as "10-20".
    """
    known = [str(name) for name in dataset[SITE].values]
    site = known[0] if site is None else site
    if site not in known:
        raise StudyError(f"This probing study did not probe the site {site!r}. {did_you_mean(site, known)}")
    chosen = dataset.sel({SITE: site, TOKEN: _positions(dataset, positions)})
    framed = None if frame is None else tuple(_positions(dataset, frame))
    panels, columns, scales, notes = _KINDS[kind](chosen, Drawn(site, layers, framed, style == "paper"))
    return Figure(
        title=_TITLES.get(kind) or dataset.attrs.get("title") or "Probing",
        panels=panels,
        columns=columns,
        scales=scales,
        notes=(f"{_counts(dataset)} {notes}".strip(),),
    )


Parts = tuple[tuple[Panel, ...], int, dict[str, Scale], str]


class Drawn(NamedTuple):
    """What the caller chose."""

    site: str
    layers: str | None  # to frame
    framed: tuple[str, ...] | None  # tokens; None: those of the exact answer
    published: bool  # the layout of the paper


def variants_of(dataset: xr.Dataset, variants: Sequence[FigureVariant]) -> list[FigureVariant]:
    """One layer x token map per site that was probed, then the others."""
    sites = [str(name) for name in dataset[SITE].values]
    maps = [
        FigureVariant(site, f"Tokens, {SITE_LABELS.get(site, site)}", {"kind": "tokens", "site": site})
        for site in sites
    ]
    return [*maps, *(one for one in variants[1:] if one.key != "within" or "within" in dataset)]


def _positions(dataset: xr.Dataset, positions: Iterable[str] | str | None) -> list[str]:
    known = [str(name) for name in dataset[TOKEN].values]
    if positions is None:
        return known
    chosen = [one.strip() for one in positions.split(",")] if isinstance(positions, str) else list(positions)
    for name in chosen:
        if name not in known:
            raise StudyError(f"Probing knows no token position {name!r}. {did_you_mean(name, known)}")
    if not chosen:
        raise StudyError(f"No token position was chosen for the figure. {did_you_mean('', known)}")
    return [name for name in known if name in chosen]


# ---- layer x token --------------------------------------------------------------------------------------------------


def _tokens(chosen: xr.Dataset, drawn: Drawn) -> Parts:
    values = chosen["auroc"].transpose(LAYER, TOKEN).values
    names, starred = _labels(chosen)
    if drawn.published:
        names = tuple(str(name) for name in chosen[TOKEN].values)
    x, y = Axis("Token", names), Axis("Layer", cell_names(chosen, LAYER))
    frames, about_frame = _frame(chosen, drawn)
    best = np.unravel_index(np.nanargmax(values), values.shape) if np.isfinite(values).any() else None
    left = Heatmap(
        key="auroc", title=f"Probe on the {SITE_NAMES.get(drawn.site, drawn.site)}", subtitle=_beyond(chosen), values=values,
        x=x, y=y, scale="auroc", frames=frames, marks=(Mark(int(best[0]), int(best[1])),) if best is not None else (),
        extras={name: chosen[name].transpose(LAYER, TOKEN).values for name in EXTRAS if name in chosen},
    )  # fmt: skip
    scale, cell = _auroc_scale(values, chosen), "Each cell: AUROC on held-out answers, mean over folds"
    tested, short = f"{_nested(chosen)} {_nested_within(chosen)}".strip(), _short_answers(chosen) if starred else ""
    if drawn.published:
        alone, note = replace(left, subtitle="", marks=()), (f"{cell}.", tested, about_frame, short)
        return (alone,), 1, {"auroc": replace(scale, marks=())}, " ".join(filter(None, note))
    received = chosen["received"].transpose(LAYER, TOKEN).values
    right = Heatmap(
        key="received", title="Attention received from later tokens", subtitle="mean over heads", values=received,
        x=x, y=y, scale="received", frames=frames, missing="no later token",
    )  # fmt: skip
    hatched = "Hatched: no later token." if np.isnan(received).any() else ""
    pointer = "Pointer: 95th percentile of the best cell over maps with permuted labels."
    notes = (f"{cell}; ring: the best cell.", tested, pointer, about_frame, hatched, f"* {short}" if short else "")
    scales = {"auroc": scale, "received": scale_over(received, "weight", clip=0.98)}
    return (left, right), 2, scales, " ".join(filter(None, notes))


def _labels(chosen: xr.Dataset) -> tuple[tuple[str, ...], bool]:
    """Names of the columns, with an asterisk where some of these tokens are in the prompt."""
    stars = chosen["in_prompt"].values > 0
    names = tuple(f"{name}{'*' if star else ''}" for name, star in zip(chosen[TOKEN].values, stars, strict=True))
    return names, bool(stars.any())


def _short_answers(chosen: xr.Dataset) -> str:
    worst = int(chosen["in_prompt"].values.argmax())
    return (
        f"Short answers: in up to {int(chosen['in_prompt'].values[worst])} of them (at {chosen[TOKEN].values[worst]}) "
        "this token is in the prompt."
    )


def _frame(chosen: xr.Dataset, drawn: Drawn) -> tuple[tuple[Frame, ...], str]:
    names = [str(name) for name in chosen[TOKEN].values]
    framed = drawn.framed if drawn.framed is not None else [name for name in names if name.startswith(EXACT)]
    columns = [index for index, name in enumerate(names) if name in framed]
    if columns and columns[-1] - columns[0] >= len(columns):
        raise StudyError(
            f"--frame outlines tokens that are next to each other, not {', '.join(framed)}; choose neighbours."
        )
    which = "the exact answer" if drawn.framed is None else ", ".join(drawn.framed)
    if drawn.layers is not None:
        first, last = _range(drawn.layers, chosen.sizes[LAYER])
        about = f"Frame: {which}, layers {first} to {last}, as requested."
    elif "frame_first" in chosen and int(chosen["frame_first"]) >= 0:
        first, last = int(chosen["frame_first"]), int(chosen["frame_last"])
        about = f"Frame: {which}, layers in which the exact answer is within 0.02 of its best."
    else:
        return (), "No frame: nothing at the exact answer is beyond chance."
    if not columns:
        return (), ""
    return (Frame(first, last, columns[0], columns[-1]),), about


def _range(layers: str, count: int) -> tuple[int, int]:
    first, _, last = str(layers).partition("-")
    if (
        not (first.strip().isdigit() and (last or first).strip().isdigit())
        or not int(first) <= int(last or first) < count
    ):
        raise StudyError(f"--layers takes a range from 0 to {count - 1}, such as 3-{count - 1}, not {layers!r}.")
    return int(first), int(last or first)


def _beyond(chosen: xr.Dataset) -> str:
    values, high = chosen["auroc"].values, float(chosen["best_high"])
    measured = np.isfinite(values)
    count = int((values[measured] > high).sum())
    return f"beyond chance (over {high:.2f}): {count} of {int(measured.sum())} cells"


def _auroc_scale(values: np.ndarray, chosen: xr.Dataset) -> Scale:
    finite = values[np.isfinite(values)]
    mark = ScaleMark(float(chosen["best_high"]), "best of a map with permuted labels")
    marks = (mark,) if CHANCE <= mark.value <= 1 else ()
    return Scale("AUROC", CHANCE, 1.0, "Blues", under=bool((finite < CHANCE).any()), marks=marks)


def _nested(chosen: xr.Dataset) -> str:
    low, high = float(chosen["nested_low"]), float(chosen["nested_high"])
    return (
        f"The best cell, selected on other folds than it is evaluated on: {float(chosen['nested']):.2f} ({low:.2f} to "
        f"{high:.2f})."
    )


def _nested_within(chosen: xr.Dataset) -> str:
    if "within" not in chosen:
        return ""
    value, low, high = (float(chosen[f"nested_within{end}"]) for end in INTERVAL_ENDS)
    return (
        f"Within {chosen.attrs.get('strata', 'strata')}, comparing only answers to similar questions, the best cell has "
        f"{value:.2f} ({low:.2f} to {high:.2f})."
    )


# ---- within strata --------------------------------------------------------------------------------------------------


def _within(chosen: xr.Dataset, drawn: Drawn) -> Parts:
    if "within" not in chosen:
        raise StudyError(
            "This probing study has no map within strata: its questions could not be grouped, or it was built by an older "
            "version (build it again with --redo probing)."
        )
    names, starred = _labels(chosen)
    x, y = Axis("Token", names), Axis("Layer", cell_names(chosen, LAYER))
    plain, within = (chosen[name].transpose(LAYER, TOKEN).values for name in ("auroc", "within"))
    best = np.unravel_index(np.nanargmax(within), within.shape)
    q = chosen["within_q"].values
    panels = (
        Heatmap(
            key="auroc", title=f"Probe on the {SITE_NAMES.get(drawn.site, drawn.site)}, all pairs", subtitle=_beyond(chosen),
            values=plain, x=x, y=y, scale="auroc",
            extras={name: chosen[name].transpose(LAYER, TOKEN).values for name in EXTRAS if name in chosen},
        ),
        Heatmap(
            key="within", title="Within strata",
            subtitle=f"q < 0.05: {int((q < 0.05).sum())} of {int(np.isfinite(q).sum())} cells",
            values=within, x=x, y=y, scale="within", marks=(Mark(int(best[0]), int(best[1])),),
            extras={name: chosen[f"within_{name}"].transpose(LAYER, TOKEN).values for name in EXTRAS},
        ),
    )  # fmt: skip
    high = float(chosen["within_best_high"])
    scale = Scale(
        "AUROC within strata", CHANCE, 1.0, "Blues", under=bool((within[np.isfinite(within)] < CHANCE).any()),
        marks=(ScaleMark(high, "best of a map with permuted labels"),) if CHANCE <= high <= 1 else (),
    )  # fmt: skip
    note = (
        f"Strata: {chosen.attrs.get('strata', 'of the question')}; only answers of the same stratum are compared, by probes "
        f"fitted on other strata; labels are permuted within strata. Ring: the best cell. {_nested_within(chosen)}"
    )
    return (
        panels,
        2,
        {"auroc": _auroc_scale(plain, chosen), "within": scale},
        f"{note} {f'* {_short_answers(chosen)}' if starred else ''}",
    )


# ---- the other kinds ------------------------------------------------------------------------------------------------


def _heads(chosen: xr.Dataset, drawn: Drawn) -> Parts:
    values = chosen["head_auroc"].transpose(LAYER, HEAD).values
    q = chosen["head_q"].transpose(LAYER, HEAD).values
    finds = np.isfinite(q) & (q < 0.05)
    panel = Heatmap(
        key="heads", title="Head's output at the exact answer",
        subtitle=f"q < 0.05: {int(finds.sum())} of {int(np.isfinite(q).sum())} heads",
        values=values, x=Axis("Head", cell_names(chosen, HEAD)), y=Axis("Layer", cell_names(chosen, LAYER)), scale="auroc",
        extras={name: chosen[f"head_{name}"].transpose(LAYER, HEAD).values for name in EXTRAS if f"head_{name}" in chosen},
    )  # fmt: skip
    finite = values[np.isfinite(values)]
    best_high = float(chosen["head_best_high"])
    marks = (ScaleMark(best_high, "best of a map with permuted labels"),) if best_high >= CHANCE else ()
    scale = Scale("AUROC", CHANCE, 1.0, "Blues", under=bool((finite < CHANCE).any()), marks=marks)
    note = (
        "AUROC on held-out answers; q: Benjamini-Hochberg over the heads, against permuted labels. Pointer and dashes: "
        "95th percentile of the best head over maps with permuted labels."
    )
    if "head_within" not in chosen:
        return (panel, _strongest(chosen, values, best_high)), 2, {"auroc": scale}, note
    within, within_q = (chosen[name].transpose(LAYER, HEAD).values for name in ("head_within", "head_within_q"))
    inside = Heatmap(
        key="heads_within", title="Within strata",
        subtitle=f"q < 0.05: {int((within_q < 0.05).sum())} of {int(np.isfinite(within_q).sum())} heads",
        values=within, x=panel.x, y=panel.y, scale="auroc",
        extras={name: chosen[f"head_within_{name}"].transpose(LAYER, HEAD).values for name in EXTRAS},
    )  # fmt: skip
    note += f" Within strata: {chosen.attrs.get('strata', '')}, comparing only answers to similar questions."
    return (panel, inside, _strongest(chosen, values, best_high)), 3, {"auroc": scale}, note


def _strongest(chosen: xr.Dataset, values: np.ndarray, best_high: float) -> Intervals:
    """The heads with the highest AUROC, with their intervals."""
    order = np.argsort(np.where(np.isfinite(values), -values, np.inf), axis=None, kind="stable")[:N_HEADS_LISTED]
    heads = [np.unravel_index(index, values.shape) for index in order if np.isfinite(values.flat[index])]
    low, high = (chosen[f"head_{side}"].transpose(LAYER, HEAD).values for side in ("low", "high"))
    floor = min((float(low[head]) for head in heads), default=CHANCE)
    return Intervals(
        key="strongest", title="Highest, 95 % interval", values=np.array([values[head] for head in heads]),
        low=np.array([low[head] for head in heads]), high=np.array([high[head] for head in heads]),
        x=Axis("AUROC", low=min(0.4, float(np.floor(10 * floor) / 10)), high=1.0),
        y=Axis("", tuple(head_name(int(layer), int(head)) for layer, head in heads)),
        guides=(Guide("x", CHANCE), Guide("x", best_high)),
    )  # fmt: skip


def _transfer(chosen: xr.Dataset, drawn: Drawn) -> Parts:
    if "transfer" not in chosen:
        raise StudyError("This probing study has no cross-topic matrix: its questions are of one topic.")
    raw = chosen["transfer"].transpose(TRAINED_ON, TOPIC).values
    gain = chosen["transfer_gain"].transpose(TRAINED_ON, TOPIC).values
    rows, columns = ([str(name) for name in chosen[dim].values] for dim in (TRAINED_ON, TOPIC))
    written = short_names(columns)
    x = Axis("Tested on", tuple(written[name] for name in columns))
    y = Axis("Fitted on", tuple(written.get(name, "all others") for name in rows))
    own = tuple(
        Mark(rows.index(name), index) for index, name in enumerate(columns) if np.isfinite(raw[rows.index(name), index])
    )
    panels = (
        Heatmap("raw", "AUROC", raw, x, y, "auroc", marks=own, missing="too few answers"),
        Heatmap("gain", "Minus log-probability", gain, x, y, "gain", marks=own, missing="too few answers"),
    )
    scales = {
        "auroc": scale_around(np.append(raw, 0.25), "AUROC", centre=CHANCE),
        "gain": scale_around(np.append(gain, 0.1), "difference", colours="PuOr_r"),
    }
    site = SITE_NAMES.get(drawn.site, drawn.site)
    note = f"Rings: cross-validated inside the group. The probe reads the {site} at the exact answer."
    return panels, 2, scales, f"{note} {letter_note(written)}".strip()


def _table(chosen: xr.Dataset, drawn: Drawn) -> Parts:
    values, kinds = chosen["table_auroc"].values, [str(kind) for kind in chosen["kind"].values]
    order = sorted(range(len(values)), key=lambda row: (list(TABLE_KINDS).index(kinds[row]), -values[row]))
    shown_kinds = [kind for kind in TABLE_KINDS if kind in kinds]
    names = tuple(str(chosen[DETECTOR].values[row]) for row in order)

    def panel(key: str, title: str, ends: tuple[str, str, str], guide: float, axis: str) -> Intervals:
        value, low, high = (chosen[name].values[order] for name in ends)
        finite = np.concatenate([low, high])[np.isfinite(np.concatenate([low, high]))]
        first, last = np.floor(10 * finite.min()) / 10, np.ceil(10 * finite.max()) / 10
        bounds = (min(0.4, first), 1.0) if guide == CHANCE else (first, last)
        return Intervals(
            key=key, title=title, values=value, low=low, high=high, x=Axis(axis, low=float(bounds[0]), high=float(bounds[1])),
            y=Axis("", names), groups=tuple(shown_kinds.index(kinds[row]) for row in order),
            categories=tuple(Category(kind, *TABLE_KINDS[kind]) for kind in shown_kinds), guides=(Guide("x", guide),),
        )  # fmt: skip

    panels = [panel("table", "AUROC, all pairs", ("table_auroc", "table_low", "table_high"), CHANCE, "AUROC")]
    note = "Lines: 95 % intervals. Layers of probes are selected on other folds; scores are not fitted."
    if "table_within" in chosen and np.isfinite(chosen["table_within"].values).any():
        ends = ("table_within", "table_within_low", "table_within_high")
        panels.append(panel("table_within", "Within strata", ends, CHANCE, "AUROC"))
        note += f" Within strata: {chosen.attrs.get('strata', '')}; only answers to similar questions are compared."
    if "table_gain" in chosen:
        reference = str(chosen.attrs.get("question_reference", ""))
        ends = ("table_gain", "table_gain_low", "table_gain_high")
        panels.append(panel("table_gain", "Gain over question", ends, 0.0, "difference"))
        note += f" Gain: paired by answer, over the strongest row that knows only the question ({reference})."
    return tuple(panels), len(panels), {}, note


_KINDS: dict[str, Callable[[xr.Dataset, Drawn], Parts]] = {
    "tokens": _tokens,
    "within": _within,
    "heads": _heads,
    "transfer": _transfer,
    "table": _table,
}
_TITLES = {
    "within": "What a probe knows beyond the question",
    "heads": "Which heads know that the answer is wrong",
    "transfer": "Does a probe of errors generalise to other topics",
    "table": "Detecting wrong answers: probes and baselines",
}


def _counts(dataset: xr.Dataset) -> str:
    counts = parse_attribute(dataset.attrs, "counts", dict[str, int], "{}")
    if not {"wrong", "correct"} <= set(counts):
        return ""
    without = counts.get("without_exact_wrong", 0) + counts.get("without_exact_correct", 0)
    left = f"; {without} without an exact answer left out" if without else ""
    if without and "has_exact" in dataset:
        left = f"; {without} without an exact answer read at the last token"
    return f"{counts['wrong']} wrong and {counts['correct']} correct answers{left}."
