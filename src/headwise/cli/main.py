"""The command line: its verbs, its exit codes, and SIGTERM. Verbs import heavy libraries only when they run.

User errors are printed as one sentence without a traceback and end with exit code 2. What nobody foresaw is a bug: one sentence
that says so, a log file with the traceback, and exit code 70. SIGTERM ends a command as Ctrl-C does: the stack unwinds, so that
no file is left half written. ``~`` is expanded here, once, for all arguments: a shell leaves it alone in ``--output=~/atlas``.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
import tempfile
import threading
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import typer

from headwise import __version__
from headwise.cli import INTERRUPTED
from headwise.cli.answers import answers
from headwise.cli.bench import bench
from headwise.cli.build import build
from headwise.cli.check import check
from headwise.cli.compare import compare
from headwise.cli.detect import detect
from headwise.cli.drift import drift
from headwise.cli.emergence import emergence
from headwise.cli.export import export
from headwise.cli.first_steps import welcome
from headwise.cli.heads import head, heads
from headwise.cli.plan import plan, studies
from headwise.cli.serve import serve
from headwise.cli.show import describe, report, show
from headwise.cli.sparsify import sparsify
from headwise.cli.terminal import complain, echo
from headwise.cli.usage import UsageError, Verb, Verbs, describe_error, examples, name_values, paragraphs
from headwise.core.errors import ContentError, HeadwiseError, HeadwiseWarning

__all__ = ["INTERRUPTED", "TERMINATED", "unwind_on_sigterm"]


app = typer.Typer(
    name="headwise",
    cls=Verbs,
    help="Reads a language model one attention head at a time.",
    epilog=examples(
        ("headwise build", "start here: measure the default model on the packaged texts; writes the folder atlas"),
        ("headwise show atlas profile", "then draw one study"),
        ("headwise describe atlas profile", "the same study in words"),
        ("headwise show --help", "options and examples of a verb"),
    ),
    add_completion=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
VERBS = (
    build, plan, check, studies, show, describe, heads, head, compare, emergence, report, serve, answers, detect, drift, bench,
    sparsify, export,
)  # fmt: skip
for verb in VERBS:
    name_values(verb)
    app.command(
        cls=getattr(verb, "command", Verb),
        context_settings=getattr(verb, "settings", None),
        help=paragraphs(verb.__doc__ or ""),
        epilog=getattr(verb, "examples", None),
    )(verb)


@app.callback(invoke_without_command=True)
def _alone(
    context: typer.Context,
    version: bool = typer.Option(False, "--version", metavar="", help="Print the version and exit."),
) -> None:
    """Without a verb: the version, or what to do next."""
    if version:
        echo(f"headwise {__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        for line in welcome(Path.cwd()):
            echo(line)


def main() -> None:
    """The entry point: runs a verb and turns errors and signals into exit codes."""
    try:
        with unwind_on_sigterm(), warnings.catch_warnings():
            warnings.showwarning = _print_note
            code = app(standalone_mode=False, prog_name="headwise") or 0
            sys.stdout.flush()  # what cannot be written is an error, and not one that the interpreter finds at its end
    except UsageError as error:
        complain(describe_error(error))
        code = 2
    except ContentError as error:
        complain(f"{str(error).rstrip('.')}; {_logged()}.")
        code = 2
    except HeadwiseError as error:
        complain(error)
        code = 2
    except (KeyboardInterrupt, typer.Abort):
        code = INTERRUPTED
    except SystemExit as end:
        if end.code != TERMINATED:
            raise
        code = TERMINATED
    except BrokenPipeError:
        _discard_stdout()
        code = 0
    except MemoryError:
        complain("there is too little memory for this; close other programs, or use a larger machine.")
        code = 2
    except Exception as error:
        code = _report(error)
    if code in (INTERRUPTED, TERMINATED):
        echo(
            "headwise: interrupted; finished measurements are stored, and the same command resumes from there.",
            err=True,
        )
    sys.exit(code)


def _print_note(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
    """Our warnings are notes for the user; those of libraries, as Python prints them."""
    if issubclass(category, HeadwiseWarning):
        echo(f"note: {message}", err=True)
    else:
        sys.stderr.write(warnings.formatwarning(message, category, *where[:2]))


def _report(error: Exception) -> int:
    """What no verb foresaw: a refusal of the system (2), or a bug (70, with its traceback in a file)."""
    if isinstance(error, OSError) and error.errno in _REFUSALS:
        _discard_stdout()
        where = str(error.filename or "the standard output")
        complain(f"{where}: {error.strerror}; check the path and the disk, then try again.")
        return 2
    first_line = (str(error).splitlines() or [""])[0][:200]
    complain(
        f"this is a bug in Headwise ({type(error).__name__}: {first_line}); {_logged()}; please report them. What was there "
        "before is intact."
    )
    return BUG


def _logged() -> str:
    """Write the traceback to a file; a clause that says where it is."""
    try:
        with tempfile.NamedTemporaryFile(
            "w", prefix="headwise-bug-", suffix=".log", delete=False, encoding="utf-8", errors="backslashreplace"
        ) as log:
            log.write(f"headwise {__version__}, Python {sys.version}\n{sys.argv!r}\n{traceback.format_exc()}")
    except OSError:
        return "the details could not be written to a file"
    return f"the details are in {log.name}"


def _discard_stdout() -> None:
    """So that the interpreter does not try, at its end, to write what could not be written."""
    with suppress(OSError, ValueError):  # in a test, standard output is no file
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


BUG = 70  # exit code: EX_SOFTWARE of sysexits.h
_REFUSALS = (
    errno.EACCES, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.ENOENT,
    errno.ENOSPC, errno.ENOTDIR, errno.EPERM, errno.EROFS,
)  # fmt: skip
TERMINATED = 143  # exit code: SIGTERM (as sent by a job scheduler)
RESEND_DELAY_S = 0.05


@contextmanager
def unwind_on_sigterm() -> Iterator[None]:
    """Raise SystemExit on SIGTERM inside the `with`; does nothing outside the main thread, which alone receives signals."""

    def on_sigterm(number: int, frame: Any) -> None:
        raise SystemExit(TERMINATED)

    def on_unraisable(unraisable: sys.UnraisableHookArgs) -> None:
        lost = _signal_of(unraisable.exc_value)
        if lost is None:
            previous_hook(unraisable)
            return
        resend = threading.Timer(RESEND_DELAY_S, os.kill, (os.getpid(), lost))
        resend.daemon = True
        resend.start()

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous, previous_hook = signal.signal(signal.SIGTERM, on_sigterm), sys.unraisablehook
    sys.unraisablehook = on_unraisable
    try:
        yield
    finally:
        sys.unraisablehook = previous_hook
        signal.signal(signal.SIGTERM, previous or signal.SIG_DFL)


def _signal_of(error: BaseException | None) -> signal.Signals | None:
    """The signal that raised an exception; None for any other exception."""
    if isinstance(error, KeyboardInterrupt):
        return signal.SIGINT
    return signal.SIGTERM if isinstance(error, SystemExit) and error.code == TERMINATED else None
