"""What holds for all tests: no network, quiet threads, Ctrl-C, an S3, one browser (two Playwrights in a process do not go
together)."""

import os
import signal

from chromium import chromium, page, pytest_collection_modifyitems
from loopback_s3 import server

__all__ = ["chromium", "page", "pytest_collection_modifyitems", "server"]

if (
    signal.getsignal(signal.SIGINT) is signal.SIG_IGN
):  # as a shell has it for jobs in its background, and their children
    signal.signal(signal.SIGINT, signal.default_int_handler)
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("OMP_NUM_THREADS", "1")
