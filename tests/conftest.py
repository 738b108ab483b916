"""What holds for all tests: no network, quiet threads, no waiting for the disk, Ctrl-C, an S3, one browser (two Playwrights
in a process do not go together)."""

import os
import signal
from pathlib import Path

from headwise.core.cpu import rule_out_broken_amx

rule_out_broken_amx(
    Path(__file__).parents[1] / ".cache"
)  # before torch is imported; workers and subprocesses inherit it

from chromium import chromium, page  # noqa: E402
from loopback_s3 import server  # noqa: E402
from workers import pytest_collection_modifyitems, pytest_xdist_make_scheduler  # noqa: E402

__all__ = ["chromium", "page", "pytest_collection_modifyitems", "pytest_xdist_make_scheduler", "server"]

if (
    signal.getsignal(signal.SIGINT) is signal.SIG_IGN
):  # as a shell has it for jobs in its background, and their children
    signal.signal(signal.SIGINT, signal.default_int_handler)
os.fsync = lambda handle: None  # no test here cuts the power, and a build waits seconds for the disk
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("OMP_NUM_THREADS", "1")
