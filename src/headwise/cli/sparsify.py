"""`headwise sparsify`: train a model to use few attention edges."""

from __future__ import annotations

import copy
import dataclasses
import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from headwise.cli import options
from headwise.cli.preflight import refuse_missing_file, refuse_unwritable
from headwise.cli.settings import fields_of, typed
from headwise.cli.terminal import echo
from headwise.cli.usage import Verb, examples
from headwise.core.errors import DataError
from headwise.core.parsing import parse

OWN_OPTIONS = ("steps", "slack", "rank", "gated")  # settings that have an option of their own


def sparsify(
    model: options.ModelArgument = None,
    data: Annotated[
        list[Path] | None,
        typer.Option(
            "--data",
            metavar="PATH",
            help="Training texts: .jsonl files with a field text, .txt files, or folders; each file is one kind of text.",
        ),
    ] = None,
    held_out: Annotated[
        list[Path] | None,
        typer.Option(
            "--held-out",
            metavar="PATH",
            help="Held-out texts of the same kinds: the loss constraint is evaluated on these.",
        ),
    ] = None,
    unseen: Annotated[
        list[Path] | None,
        typer.Option("--unseen", metavar="PATH", help="Texts of other kinds, evaluated only at the end."),
    ] = None,
    output: Annotated[Path, typer.Option("-o", "--output", help="The folder for the adapter.")] = Path("sparse"),
    steps: Annotated[int, typer.Option("--steps", help="Number of training steps.", min=1)] = 1000,
    slack: Annotated[float, typer.Option("--slack", help="Allowed increase in loss, in nats per token.")] = 0.03,
    rank: Annotated[int, typer.Option("--rank", help="Rank of the adapter; 0 trains all weights.")] = 16,
    dense_control: Annotated[
        bool, typer.Option("--dense-control", help="Train the same way without gates, as a control.")
    ] = False,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="Another training setting, such as length=1024; may be repeated. headwise sparsify --help lists them.",
        ),
    ] = None,
    stop_at: Annotated[int | None, typer.Option("--stop-at", help="Stop after this step, to resume later.")] = None,
    dtype: options.DtypeOption = "auto",
    device: options.DeviceOption = None,
    revision: options.RevisionOption = None,
    as_json: options.JsonOption = False,
) -> None:
    """Train a sparse version of a model: gates remove as many attention edges as the loss constraint allows.

    A killed run resumes from its last checkpoint when the same command is run again. The result is an adapter for the option
    --adapter of other verbs. Small models train on a CPU; larger ones need a GPU.
    """
    if not data or not held_out:
        raise DataError(
            "sparsify needs training texts and held-out texts of the same kinds; give them with --data and --held-out."
        )
    for option, paths in (("--data", data), ("--held-out", held_out), ("--unseen", unseen or [])):
        for path in paths:
            refuse_missing_file(option, path)
    refuse_unwritable("-o", output)
    from headwise.model import load
    from headwise.studies.progress import progress_display
    from headwise.training import SparsityRecipe, read_texts, require_readable, require_unfinished
    from headwise.training import sparsify as run

    recipe = SparsityRecipe(
        **{
            "steps": steps,
            "slack": slack,
            "rank": rank,
            "gated": not dense_control,
            **fields_of(settings or [], SparsityRecipe, "training setting"),
        }
    )
    require_unfinished(output)
    for paths in (data, held_out, unseen or []):
        require_readable(paths)
    with progress_display(quiet=as_json, of="steps") as bars:
        bars.message(f"loading {model or 'the default model'}")
        loaded = load(model, dtype=dtype, device=device, revision=revision)
        bars.message("reading the texts")
        cache = output / "tokens"
        texts, held = read_texts(data, loaded, cache), read_texts(held_out, loaded, cache)
        other = read_texts(unseen, loaded, cache) if unseen else None

        def report(done: int, total: int, numbers: dict[str, float]) -> None:
            note = f"edges {numbers['share']:.1%}, loss {numbers['loss']:.3f} ({numbers['dense']:.3f} dense)"
            bars.update("training", done, total, note)

        folder = run(loaded, texts, held, recipe, unseen=other, output=output, progress=report, stop_at=stop_at)
    _print_result(folder, as_json)


sparsify.examples = examples(  # type: ignore[attr-defined]
    ("headwise sparsify --data texts/train --held-out texts/held-out -o sparse", "the default model"),
    (
        "headwise sparsify ./my-model --data my.jsonl --held-out other.jsonl --steps 4000",
        "your model, with more training steps",
    ),
    ("headwise sparsify --data a.jsonl --held-out b.jsonl --set length=1024", "another training setting"),
    ("headwise build --reference sparse", "then build an atlas that compares the sparse and the dense model"),
)


class SparsifyCommand(Verb):
    """The verb with the training settings in its help; they are read from the recipe when the help is printed."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """The help of the verb, then the settings with their defaults and meanings, then the examples."""
        from headwise.training import SparsityRecipe

        fields = (one for one in dataclasses.fields(SparsityRecipe) if one.name not in OWN_OPTIONS)
        rows = [f"{one.name}={typed(one.default)}\n  [dim]{escape(one.metadata['help'])}[/dim]" for one in fields]
        command = copy.copy(self)
        command.epilog = "\n\n".join(["[b]Settings for --set, with their defaults[/b]", *rows, self.epilog or ""])
        Verb.format_help(command, ctx, formatter)


sparsify.command = SparsifyCommand  # type: ignore[attr-defined]


def _print_result(folder: Path, as_json: bool) -> None:
    """Print the final evaluation as a table, and draw the training curves."""
    from headwise.figures import save, training

    file = folder / "training.json"
    if not file.is_file():
        echo(f"Stopped; a checkpoint is in {folder}. The same command resumes from it.")
        return
    log: dict[str, Any] = parse(file.read_bytes(), dict[str, Any])
    curves = save(training.figure(log), folder / "training.png")
    final = [row for row in log["final"] if row["bias"] == 0.0]
    if as_json:
        echo(json.dumps({"folder": str(folder), "final": final}))
        return
    echo(f"The sparse model is in {folder}; its training curves are in {curves}.\n")
    echo(f"{'text':24} {'edges':>8} {'loss':>8} {'dense':>8} {'KL':>8}")
    for row in final:
        name = f"{row['kind']} ({row['texts']})"
        echo(f"{name:24} {row['share']:8.2%} {row['loss']:8.3f} {row['dense']:8.3f} {row['distance']:8.3f}")
