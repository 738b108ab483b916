"""What holds for all tests: no network, quiet threads, and one browser (two Playwrights in a process do not go together)."""

import os

from chromium import chromium, page, pytest_collection_modifyitems

__all__ = ["chromium", "page", "pytest_collection_modifyitems"]

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("OMP_NUM_THREADS", "1")
