"""`headwise bench`: how well do published scores find wrong answers, on several question sets?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from headwise.cli import options
from headwise.cli.preflight import refuse_unwritable
from headwise.cli.settings import refuse_unknown, study_options
from headwise.cli.terminal import echo
from headwise.cli.usage import examples
from headwise.core.errors import DataError, StudyError, did_you_mean

BENCHMARKS = ("detection",)
STUDIES = ("answers", "uncertainty")
PRINTED = ("auroc", "auprc", "prr", "ece", "gain_logprob", "seconds_ratio")


def bench(
    what: Annotated[
        str, typer.Argument(metavar="detection", help="The benchmark; so far there is one.", show_default=False)
    ],
    model: options.ModelArgument = None,
    sets: Annotated[
        str,
        typer.Option(
            "--sets",
            help="Comma-separated question sets: triviaqa, nq_open, sciq, gsm8k, coqa, squad, truthfulqa, halueval_qa; "
            "NAME=FOLDER for their rows in local files; your own file; packaged.",
        ),
    ] = "triviaqa,nq_open,sciq,gsm8k,coqa",
    limit: Annotated[
        int, typer.Option("--limit", min=0, help="Maximum number of questions per set; 0 means all.")
    ] = 2000,
    output: Annotated[
        Path, typer.Option("-o", "--output", help="The folder of the atlases, one per set, and of the results.")
    ] = Path("bench"),
    redo: Annotated[str, typer.Option("--redo", help="Studies to measure again: answers, uncertainty, or both.")] = "",
    dtype: options.DtypeOption = "auto",
    device: options.DeviceOption = None,
    revision: options.RevisionOption = None,
    adapter: options.AdapterOption = None,
    settings: options.SetOption = None,
    as_json: options.JsonOption = False,
) -> None:
    """Compare every published score of wrong answers on several question sets.

    Each set is answered, scored and kept as an atlas below the folder. A killed run resumes when the same command is run
    again, and a finished set is not repeated. A set that the model answers nearly all wrong, or nearly all right, is named and
    left out.

    Writes report.html (one page), results.csv and results.tex.
    """
    if what not in BENCHMARKS:
        raise DataError(f"There is no benchmark {what!r}. {did_you_mean(what, BENCHMARKS)}")
    again = options.split(redo) or []
    refuse_unknown(again, settings or [])
    others = [name for name in again if name not in STUDIES]
    others += [name for one in settings or [] if (name := one.partition(".")[0].strip()) not in STUDIES]
    if others:
        raise StudyError(f"The benchmark has the studies {' and '.join(STUDIES)}, and not {others[0]!r}; omit it.")
    refuse_unwritable("-o", output)
    from headwise.bench import bench_detection, question_sets

    names = options.split(sets) or []
    question_sets(names)  # reads the files before the model is loaded
    from headwise.analysis import describe_benchmark
    from headwise.cli.tables import print_table
    from headwise.studies.progress import ProgressListener, progress_display

    loading: dict[str, Any] = {"dtype": dtype, "device": device, "revision": revision, "adapter": adapter}
    with progress_display(quiet=as_json) as bars:
        bars.message(f"loading {model or 'the default model'}")
        found = bench_detection(
            model,
            names,
            limit=limit or None,
            output=output,
            options=study_options(settings or []),
            redo=again,
            progress=ProgressListener(bars),
            loading=loading,
        )
    files = [str(output / name) for name in ("report.html", "results.csv", "results.tex")]
    if as_json:
        echo(json.dumps(found.to_dict() | {"files": files}, ensure_ascii=False))
        return
    print_table(found.frame()[list(PRINTED)].rename_axis("head"))
    echo("")
    echo(describe_benchmark(found).short())
    for name, reason in found.undecided.items():
        echo(f"{name}: not decidable, since {reason}.")
    for file in files:
        echo(file)


bench.examples = examples(  # type: ignore[attr-defined]
    ("headwise bench detection --sets sciq,coqa --limit 500", "the default model on two sets from the hub"),
    (
        "headwise bench detection ./my-model --sets triviaqa=rows/triviaqa,mine.jsonl",
        "without a network, and your own file",
    ),
    ("headwise bench detection --set uncertainty.samples=0", "without the scores that need sampled answers"),
)
