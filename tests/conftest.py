"""What holds for all tests: no network, quiet threads, one browser (two Playwrights in a process do not go together), an S3."""

import os

from chromium import chromium, page, pytest_collection_modifyitems
from loopback_s3 import server

__all__ = ["chromium", "page", "pytest_collection_modifyitems", "server"]

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("OMP_NUM_THREADS", "1")
