"""`headwise answers`: the model's answers, their labels, and the rule behind each label."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headwise.cli.options import AtlasArgument, JsonOption
from headwise.cli.terminal import console, echo, marked
from headwise.cli.usage import examples
from headwise.core.parsing import parse_attribute

if TYPE_CHECKING:
    import pandas as pd
    from rich.table import Table

SHOWN = ["question", "answer", "exact", "gold", "label", "rule"]
SAVED = [
    "topic", "difficulty", "question", "answer", "exact", "gold", "golds", "label", "rule", "matched", "finished",
    "prompt_tokens", "answer_tokens", "logprob_mean", "logprob_min",
]  # fmt: skip


def answers(
    atlas: AtlasArgument,
    label: Annotated[
        str | None, typer.Option("--label", help="Only answers with this label: correct, wrong or refused.")
    ] = None,
    topic: Annotated[str | None, typer.Option("--topic", help="Only answers on this topic.")] = None,
    rule: Annotated[
        str | None,
        typer.Option(
            "--rule",
            help="Only answers whose label was decided by this rule; without --rule, the rules are listed with their counts.",
        ),
    ] = None,
    limit: Annotated[int, typer.Option("-n", "--limit", min=1, help="Maximum number of rows to print.")] = 20,
    seed: Annotated[int | None, typer.Option("--seed", help="Sample the rows at random with this seed.")] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="All rows as a .csv, .json or .parquet file.")
    ] = None,
    spans: Annotated[
        str,
        typer.Option(
            "--spans",
            help="How the exact answer is found in the answer: blind (without the label) or published (with it).",
        ),
    ] = "blind",
    as_json: JsonOption = False,
) -> None:
    """List questions, answers, exact answers and labels, with the rule that decided each label.

    Rule-based labels contain errors: read a sample before you trust a study that depends on them.
    """
    from headwise.atlas import Atlas
    from headwise.cli.tables import save_table
    from headwise.core.errors import translate_content_errors

    dataset = Atlas.open(atlas)["answers"]
    with translate_content_errors(f"The study 'answers' in {atlas}"):
        every = _with_exact(dataset.to_dataframe(), spans)
    for column, wanted in (("label", label), ("topic", topic), ("rule", rule)):
        _refuse_unknown(every, column, wanted)
    selected = every[
        (every["label"] == (label or every["label"]))
        & (every["topic"] == (topic or every["topic"]))
        & (every["rule"] == (rule or every["rule"]))
    ]
    if output is not None:
        save_table(selected[SAVED].rename_axis("id"), output)
        echo(output)
        return
    rows = selected.sample(min(limit, len(selected)), random_state=seed) if seed is not None else selected.head(limit)
    if as_json:
        listed = rows[SAVED].rename_axis("id").reset_index().to_json(orient="records")
        echo(json.dumps({"counts": _counts(selected), "answers": json.loads(listed)}, ensure_ascii=False))
        return
    _print(selected, rows, len(every))


answers.examples = examples(  # type: ignore[attr-defined]
    "headwise answers atlas",
    "headwise answers atlas --label wrong --topic capitals -n 30",
    ("headwise answers atlas --rule contained --seed 0", "a random sample of the answers that one rule labelled"),
    ("headwise answers atlas -o answers.csv", "all answers as a table"),
)


def _with_exact(frame: pd.DataFrame, spans: str) -> pd.DataFrame:
    """The answers with a column of exact answers; empty text where none was found."""
    from headwise.core.errors import DataError, did_you_mean
    from headwise.corpora.exact_answers import METHODS, exact_answer

    if spans not in METHODS:
        raise DataError(f"--spans has no method {spans!r}. {did_you_mean(spans, METHODS)}")
    found = []
    for row in frame.itertuples():
        golds = [str(row.matched), *parse_attribute({"golds": str(row.golds)}, "golds", list[str])]
        span = exact_answer(str(row.question), str(row.answer), spans, label=str(row.label), golds=golds)
        found.append("" if span is None else str(row.answer)[span[0] : span[1]])
    return frame.assign(exact=found)


def _refuse_unknown(frame: pd.DataFrame, column: str, wanted: str | None) -> None:
    from headwise.core.errors import DataError, did_you_mean

    known = [str(value) for value in frame[column].unique()]
    if wanted is not None and wanted not in known:
        raise DataError(f"no answer has the {column} {wanted!r}. {did_you_mean(wanted, known)}")


def _counts(frame: pd.DataFrame) -> dict[str, dict[str, int]]:
    return {
        **{name: {str(key): int(n) for key, n in frame[name].value_counts().items()} for name in ("label", "rule")},
        "cut": {"answers that were cut at the token limit": int((~frame["finished"].astype(bool)).sum())},
    }


def _print(selected: pd.DataFrame, rows: pd.DataFrame, size: int) -> None:
    from rich.table import Table

    out = console(width=200, soft_wrap=True)
    if selected.empty:
        out.print(f"None of the {size} answers matches; omit one of --label, --topic and --rule.")
        return
    counts = _counts(selected)
    labels = ", ".join(f"{count} {label}" for label, count in counts["label"].items())
    rules = ", ".join(f"{rule} {count}" for rule, count in counts["rule"].items())
    cut = next(iter(counts["cut"].values()))
    out.print(f"{len(selected)} of {size} answers: {marked(labels)}; {cut} cut at the token limit.")
    out.print(f"Labelled by rule: {marked(rules)}.\n")
    topics = selected.pivot_table(index="topic", columns="label", values="question", aggfunc="count", fill_value=0)
    if len(topics) > 1:
        out.print(_topic_table(topics), "")
    table = Table("id", *SHOWN, box=None, header_style="bold")
    for name, row in rows.iterrows():
        table.add_row(marked(name), *(_cell(str(row[column])) for column in SHOWN))
    out.print(table)
    if len(rows) < len(selected):
        out.print(f"\n{len(rows)} of {len(selected)} shown; -n shows more, -o answers.csv writes all.", markup=False)


def _topic_table(topics: pd.DataFrame) -> Table:
    """Number of answers per topic and label, with the share of correct answers if both labels are present."""
    from rich.table import Table

    shared = {"correct", "wrong"} <= set(topics.columns)
    table = Table("topic", *map(marked, topics.columns), *(["share correct"] * shared), box=None, header_style="bold")
    for name, row in topics.iterrows():
        cells = [str(int(count)) for count in row]
        if shared:
            judged = row["correct"] + row["wrong"]
            cells.append(f"{row['correct'] / judged:.2f}" if judged else "-")
        table.add_row(marked(name), *cells)
    return table


def _cell(text: str) -> str:
    """The text on one line of at most 90 characters, without markup."""
    line = " ".join(text.split())
    return marked(line if len(line) <= 90 else line[:87] + "...")
