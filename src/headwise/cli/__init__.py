"""The command line. One file per verb, or per group of related verbs; `main` puts them together."""

import sys

INTERRUPTED = 130  # exit code: Ctrl-C


def run() -> None:
    """The entry point: loads the command line, which takes a second, and runs it. Ctrl-C is one sentence from the beginning."""
    try:
        from headwise.cli.main import main
    except KeyboardInterrupt:
        sys.stderr.write("headwise: interrupted before anything was done; run the same command again.\n")
        sys.exit(INTERRUPTED)
    main()
