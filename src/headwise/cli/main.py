"""The command line: one verb per file. Heavy libraries are imported only by the verbs that need them.

User errors are printed as one sentence without a traceback and end with exit code 2.
"""

from __future__ import annotations

import sys

import typer

from headwise import __version__
from headwise.cli.answers import answers
from headwise.cli.build import build
from headwise.cli.check import check
from headwise.cli.compare import compare
from headwise.cli.describe import describe
from headwise.cli.detect import detect
from headwise.cli.export import export
from headwise.cli.head import head
from headwise.cli.heads import heads
from headwise.cli.plan import plan
from headwise.cli.report import report
from headwise.cli.serve import serve
from headwise.cli.show import show
from headwise.cli.signals import INTERRUPTED, TERMINATED, unwind_on_sigterm
from headwise.cli.sparsify import sparsify
from headwise.cli.studies import studies
from headwise.cli.usage import UsageError, describe_error, examples, paragraphs
from headwise.core.errors import HeadwiseError

app = typer.Typer(
    name="headwise",
    help="Reads a language model one attention head at a time.",
    epilog=examples(
        ("headwise build", "start here: measure the default model on the packaged texts; writes the folder atlas"),
        ("headwise show atlas profile", "then draw one study"),
        ("headwise describe atlas profile", "the same study in words"),
        ("headwise show --help", "options and examples of a verb"),
    ),
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
VERBS = (
    build, plan, check, studies, show, describe, heads, head, compare, report, serve, answers, detect, sparsify, export,
)  # fmt: skip
for verb in VERBS:
    app.command(
        cls=getattr(verb, "command", None),
        context_settings=getattr(verb, "settings", None),
        help=paragraphs(verb.__doc__ or ""),
        epilog=getattr(verb, "examples", None),
    )(verb)


@app.callback(invoke_without_command=True)
def _version(version: bool = typer.Option(False, "--version", help="Print the version and exit.")) -> None:
    if version:
        typer.echo(f"headwise {__version__}")
        raise typer.Exit


def main() -> None:
    """The entry point: runs a verb and turns errors and signals into exit codes."""
    try:
        with unwind_on_sigterm():
            code = app(standalone_mode=False, prog_name="headwise") or 0
    except UsageError as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            error.show()
        else:
            typer.secho(f"headwise: {describe_error(error)}", fg="red", err=True)
        code = 2
    except HeadwiseError as error:
        typer.secho(f"headwise: {error}", fg="red", err=True)
        code = 2
    except (KeyboardInterrupt, typer.Abort):
        code = INTERRUPTED
    except SystemExit as end:
        if end.code != TERMINATED:
            raise
        code = TERMINATED
    except BrokenPipeError:
        code = 0
    if code in (INTERRUPTED, TERMINATED):
        typer.echo(
            "headwise: interrupted; finished measurements are stored, and the same command resumes from there.",
            err=True,
        )
    sys.exit(code)
