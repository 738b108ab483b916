"""`headwise sparsify`: teach a model to do its work over few attention edges."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from headwise.cli import options
from headwise.cli.examples import examples
from headwise.cli.places import refuse_missing_file, refuse_unwritable
from headwise.core.errors import DataError


def sparsify(
    model: options.ModelArgument = None,
    data: Annotated[
        list[Path] | None,
        typer.Option(
            "--data",
            metavar="PLACE",
            help="Texts to train on: .jsonl with a field text, .txt, or folders of them. A file is a kind of text.",
            show_default=False,
        ),
    ] = None,
    held_out: Annotated[
        list[Path] | None,
        typer.Option(
            "--held-out",
            metavar="PLACE",
            help="Texts of the same kinds that are not trained on: the loss is held on these.",
            show_default=False,
        ),
    ] = None,
    unseen: Annotated[
        list[Path] | None,
        typer.Option(
            "--unseen", metavar="PLACE", help="Other kinds of text, measured at the end only.", show_default=False
        ),
    ] = None,
    output: Annotated[Path, typer.Option("-o", "--output", help="Where the adapter goes.")] = Path("sparse"),
    steps: Annotated[int, typer.Option("--steps", help="Steps of training.", min=1)] = 1000,
    slack: Annotated[float, typer.Option("--slack", help="Nats a token that may be lost.")] = 0.03,
    rank: Annotated[int, typer.Option("--rank", help="Of the adapter; 0 trains all weights.")] = 16,
    dense_control: Annotated[
        bool, typer.Option("--dense-control", help="The same training without gates, to compare with.")
    ] = False,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="Another setting of the recipe, such as length=1024 or distil=0.5; may be given several times.",
            show_default=False,
        ),
    ] = None,
    stop_at: Annotated[
        int | None, typer.Option("--stop-at", help="Stop after this step, to go on later.", show_default=False)
    ] = None,
    dtype: options.DtypeOption = "auto",
    device: options.DeviceOption = None,
    revision: options.RevisionOption = None,
    as_json: options.JsonOption = False,
) -> None:
    """Train a sparse version of a model: gates that cut attention edges, pressed shut while the loss stays.

    A killed run goes on from its last checkpoint when the same command is given again. The result is an adapter that
    every verb takes with --adapter. Small models train on a CPU; others want a GPU.
    """
    if not data or not held_out:
        raise DataError("Give texts with --data, and texts of the same kinds that are not trained on with --held-out.")
    for option, places in (("--data", data), ("--held-out", held_out), ("--unseen", unseen or [])):
        for place in places:
            refuse_missing_file(option, place)
    refuse_unwritable("-o", output)
    from headwise.cli.settings import fields_of
    from headwise.model import load
    from headwise.studies.progress import progress_display
    from headwise.training import Recipe, read_texts, require_readable, require_unfinished
    from headwise.training import sparsify as run

    recipe = Recipe(
        **{
            "steps": steps,
            "slack": slack,
            "rank": rank,
            "gated": not dense_control,
            **fields_of(settings or [], Recipe),
        }
    )
    require_unfinished(output)
    for places in (data, held_out, unseen or []):
        require_readable(places)
    with progress_display(quiet=as_json, of="steps") as bars:
        bars.message(f"loading {model or 'the default model'}")
        loaded = load(model, dtype=dtype, device=device, revision=revision)
        bars.message("reading the texts")
        kept = output / "tokens"
        texts, held = read_texts(data, loaded, kept), read_texts(held_out, loaded, kept)
        other = read_texts(unseen, loaded, kept) if unseen else None

        def report(done: int, total: int, numbers: dict[str, float]) -> None:
            note = f"edges {numbers['share']:.1%}, loss {numbers['loss']:.3f} ({numbers['dense']:.3f} dense)"
            bars.update("training", done, total, note)

        folder = run(loaded, texts, held, recipe, unseen=other, output=output, progress=report, stop_at=stop_at)
    _tell(folder, as_json)


sparsify.examples = examples(  # type: ignore[attr-defined]
    ("headwise sparsify --data texts/train --held-out texts/held-out -o sparse", "the default model"),
    (
        "headwise sparsify ./my-model --data my.jsonl --held-out other.jsonl --steps 4000",
        "your model, trained for longer",
    ),
    ("headwise sparsify --data a.jsonl --held-out b.jsonl --set length=1024", "another setting of the recipe"),
    ("headwise build --reference sparse", "then: the atlas, with the maps of the sparse and the dense model"),
)


def _tell(folder: Path, as_json: bool) -> None:
    """What came of it, in a table and a picture."""
    from headwise.figures import save, training

    file = folder / "training.json"
    if not file.is_file():
        typer.echo(f"Stopped; a checkpoint is in {folder}. The same command goes on.")
        return
    told = json.loads(file.read_text(encoding="utf-8"))
    picture = save(training.figure(told), folder / "training.png")
    final = [row for row in told["final"] if row["bias"] == 0.0]
    if as_json:
        typer.echo(json.dumps({"folder": str(folder), "final": final}))
        return
    typer.echo(f"The sparse model is in {folder}; its training is drawn in {picture}.\n")
    typer.echo(f"{'text':24} {'edges':>8} {'loss':>8} {'dense':>8} {'KL':>8}")
    for row in final:
        name = f"{row['kind']} ({row['texts']})"
        typer.echo(f"{name:24} {row['share']:8.2%} {row['loss']:8.3f} {row['dense']:8.3f} {row['distance']:8.3f}")
