"""Keeps ``transformers`` quiet while a model is built or loaded, and gives it its voice back afterwards.

Loading prints progress bars and advice that mean little to a reader of attention heads (``accelerate`` warns of weights
that were offloaded as they were asked to be). What matters in it (weights that are missing from the file) is checked in
:mod:`headwise.model.loading` and raised. Downloads keep their bars: they take long.
"""

from __future__ import annotations

import logging as plain
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from huggingface_hub.utils import are_progress_bars_disabled, disable_progress_bars, enable_progress_bars
from transformers.utils import logging

__all__ = ["quiet"]


@contextmanager
def quiet() -> Iterator[None]:
    """Errors only, and no loading bars, inside the block."""
    verbosity, bars, downloads = logging.get_verbosity(), logging.is_progress_bar_enabled(), _download_bars()
    spreading = plain.getLogger("accelerate")
    level = spreading.level
    spreading.setLevel(plain.ERROR)
    logging.set_verbosity_error()
    logging.disable_progress_bar()  # switches the hub's bars off too
    _set_download_bars(downloads)
    try:
        yield
    finally:
        spreading.setLevel(level)
        logging.set_verbosity(verbosity)
        if bars:
            with warnings.catch_warnings(action="ignore"):  # the hub warns where an environment variable forbids bars
                logging.enable_progress_bar()
        _set_download_bars(downloads)


def _download_bars() -> bool:
    return not are_progress_bars_disabled()


def _set_download_bars(shown: bool) -> None:
    with warnings.catch_warnings(action="ignore"):
        (enable_progress_bars if shown else disable_progress_bars)()
