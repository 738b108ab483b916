"""The command line. One file per verb, or per group of related verbs; `main` puts them together."""

import gc
import sys

INTERRUPTED = 130  # exit code: Ctrl-C
NEW_OBJECTS = 100_000  # between two searches for garbage: libraries and Datasets stay, and searching them took time


def run() -> None:
    """The entry point: loads the command line, which takes a second, and runs it. Ctrl-C is one sentence from the beginning."""
    gc.set_threshold(NEW_OBJECTS, 10, 10)
    try:
        from headwise.cli.main import main
    except KeyboardInterrupt:
        sys.stderr.write("headwise: interrupted before anything was done; run the same command again.\n")
        sys.exit(INTERRUPTED)
    main()
