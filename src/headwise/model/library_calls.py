"""Calls into ``transformers`` and the hub: silenced, and with their errors translated into one sentence with a remedy.

``transformers``, the hub, safetensors and torch each raise their own exceptions, often nested. The chain is searched from
the innermost cause outwards, and the first exception that is recognised becomes a ``ModelError`` with its own remedy. Any
other is about the model's files, too: nothing but libraries that read them runs in these blocks. Loading prints progress
bars and advice that a user cannot act on; what matters (missing weights) is checked in :mod:`headwise.model.loading` and
raised. Downloads keep their progress bars.
"""

from __future__ import annotations

import json
import logging
import os
import pickle
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from huggingface_hub import constants, errors
from huggingface_hub.utils import are_progress_bars_disabled, disable_progress_bars, enable_progress_bars
from safetensors import SafetensorError
from transformers.utils import logging as transformers_logging

from headwise.core.errors import HeadwiseError, ModelError, reason


@contextmanager
def translate_load_errors(name: str, revision: str | None = None) -> Iterator[None]:
    """Raise recognised errors of loading ``name`` as a ``ModelError`` with a remedy."""
    try:
        yield
    except HeadwiseError:
        raise
    except Exception as error:
        for link in _chain(error):
            sentence = _hub(link, name, revision) or _files(link, name) or _model(link, name)
            if sentence is not None:
                raise ModelError(sentence) from error
        raise ModelError(
            f"transformers could not load {name} ({reason(error)}); correct or copy its files again, or install the "
            "transformers version that it was made with."
        ) from error


def _chain(error: BaseException) -> list[BaseException]:
    """The exception and its causes, innermost first, because the cause is the most specific."""
    links: list[BaseException] = []
    link: BaseException | None = error
    while link is not None and link not in links:
        links.append(link)
        link = link.__cause__ or link.__context__
    return links[::-1]


def is_unreachable(error: BaseException) -> bool:
    """Whether the hub was offline or did not answer."""
    return any(isinstance(link, errors.LocalEntryNotFoundError | errors.OfflineModeIsEnabled) for link in _chain(error))


def _hub(error: BaseException, name: str, revision: str | None) -> str | None:
    if isinstance(error, errors.GatedRepoError):
        return (
            f"{name} is gated: accept its terms at https://huggingface.co/{name}, log in with `hf auth login`, and try "
            "again."
        )
    if isinstance(error, errors.RevisionNotFoundError):
        return f"{name} has no revision {revision!r} on the hub; check its branches and commits there."
    if isinstance(error, errors.RepositoryNotFoundError):
        return (
            f"There is no folder and no accessible model {name!r} on the hub; check the spelling, or log in with "
            "`hf auth login` if it is private."
        )
    if isinstance(error, errors.HFValidationError):
        return (
            f"There is no folder {name!r}, and it cannot be a name on the hub; give a folder with a config.json, "
            "a .gguf file, or a name like HuggingFaceTB/SmolLM2-135M-Instruct."
        )
    if isinstance(error, errors.LocalEntryNotFoundError | errors.OfflineModeIsEnabled):
        why = "the hub is switched off (HF_HUB_OFFLINE)" if constants.is_offline_mode() else "the hub did not answer"
        return (
            f"{name} is not in the local Hugging Face cache ({constants.HF_HUB_CACHE}), and {why}; check the spelling, "
            "connect to the network, or give a folder that contains the model."
        )
    if isinstance(error, errors.EntryNotFoundError):
        return f"{name} is on the hub but is not a transformers model: it has no config.json or no weights."
    return None


def _files(error: BaseException, name: str) -> str | None:
    if isinstance(error, SafetensorError | pickle.UnpicklingError | EOFError):
        return f"The weights of {name} are damaged or incomplete ({_first_line(error)}); copy or download them again."
    if isinstance(error, json.JSONDecodeError):
        return f"A JSON file of {name} is not valid JSON ({reason(error)}); copy or download it again."
    if isinstance(error, errors.StrictDataclassError):
        return (
            f"The config.json of {name} has a value that its architecture does not allow ({reason(error)}); correct it."
        )
    if isinstance(error, OSError) and "no file named" in str(error):
        return f"{name} has a config.json but no weights (model.safetensors); copy or download them too."
    return None


def _model(error: BaseException, name: str) -> str | None:
    text = str(error)
    if isinstance(error, ValueError) and "trust_remote_code" in text:
        return (
            f"{name} comes with its own Python code, which Headwise does not run by default; read that code, then load "
            "it with trust_remote_code=True."
        )
    if isinstance(error, ValueError) and ("does not recognize this architecture" in text or "`model_type`" in text):
        return (
            f"The installed transformers does not know the architecture of {name}; upgrade it with `pip install -U "
            "transformers`, or check the config.json."
        )
    if isinstance(error, RuntimeError) and "ignore_mismatched_sizes" in text:
        return f"The weights of {name} have other shapes than its config.json says; use the config of these weights."
    if isinstance(error, ValueError) and ("offload_folder" in text or "offload_dir" in text):
        return (
            f"Parts of {name} are placed on disk, and its files must be rewritten for that; give a folder with --offload "
            "FOLDER (offload_folder=)."
        )
    if isinstance(error, torch.OutOfMemoryError):
        return (
            f"{name} does not fit into the device's memory; use dtype='bfloat16', device_map='auto', or device='cpu'."
        )
    if isinstance(error, ImportError):
        return f"{name} needs a package that is not installed: {_first_line(error)}"
    return None


def _first_line(error: BaseException) -> str:
    return str(error).strip().split("\n")[0].strip() or type(error).__name__


def looks_like_path(name: str) -> bool:
    """Whether a name that does not exist is meant as a path, not as a name on the hub."""
    return name.startswith((".", "~", os.sep)) or "\\" in name or name.endswith(".gguf")


@contextmanager
def silence_transformers() -> Iterator[None]:
    """Log errors only, and show no loading bars, inside the block."""
    verbosity, bars = transformers_logging.get_verbosity(), transformers_logging.is_progress_bar_enabled()
    downloads = not are_progress_bars_disabled()
    accelerate = logging.getLogger("accelerate")  # warns about offloaded weights
    level = accelerate.level
    accelerate.setLevel(logging.ERROR)
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()  # also disables the hub's bars
    _show_download_bars(downloads)
    try:
        yield
    finally:
        accelerate.setLevel(level)
        transformers_logging.set_verbosity(verbosity)
        if bars:
            with warnings.catch_warnings(action="ignore"):  # the hub warns if an environment variable forbids bars
                transformers_logging.enable_progress_bar()
        _show_download_bars(downloads)


def _show_download_bars(shown: bool) -> None:
    with warnings.catch_warnings(action="ignore"):
        (enable_progress_bars if shown else disable_progress_bars)()
