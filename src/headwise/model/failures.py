"""What went wrong while loading, in one sentence with the remedy.

``transformers``, the hub, safetensors and torch each raise their own kinds of errors, often one wrapped in another.
Here the chain is walked from the outside in and the first one that is understood becomes a ``ModelError``. What is not
understood is let through with its traceback: that is a bug.
"""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from huggingface_hub import constants, errors
from safetensors import SafetensorError

from headwise.core.errors import HeadwiseError, ModelError

__all__ = ["in_words", "is_path", "unreachable"]


@contextmanager
def in_words(name: str, revision: str | None = None) -> Iterator[None]:
    """Errors of loading ``name`` inside the block come out as a ``ModelError`` with a remedy."""
    try:
        yield
    except HeadwiseError:
        raise
    except Exception as error:
        for link in _chain(error):
            sentence = _hub(link, name, revision) or _files(link, name) or _model(link, name)
            if sentence is not None:
                raise ModelError(sentence) from error
        raise


def _chain(error: BaseException) -> list[BaseException]:
    """The causes first: they say more than what was wrapped around them."""
    links: list[BaseException] = []
    link: BaseException | None = error
    while link is not None and link not in links:
        links.append(link)
        link = link.__cause__ or link.__context__
    return links[::-1]


def unreachable(error: BaseException) -> bool:
    """Whether it failed because the hub was off or did not answer."""
    return any(isinstance(link, errors.LocalEntryNotFoundError | errors.OfflineModeIsEnabled) for link in _chain(error))


def _hub(error: BaseException, name: str, revision: str | None) -> str | None:
    if isinstance(error, errors.GatedRepoError):
        return (
            f"{name} is gated: accept its terms at https://huggingface.co/{name}, log in with `hf auth login`, and try "
            "again."
        )
    if isinstance(error, errors.RevisionNotFoundError):
        return f"{name} has no revision {revision!r} on the hub; look at its branches and commits there."
    if isinstance(error, errors.RepositoryNotFoundError):
        return (
            f"There is no folder and no model {name!r} on the hub that you may read; check the spelling, or log in "
            "with `hf auth login` if it is private."
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
            "connect to the network, or give a folder that holds the model."
        )
    if isinstance(error, errors.EntryNotFoundError):
        return f"{name} is on the hub but is not a transformers model: it has no config.json or no weights."
    return None


def _files(error: BaseException, name: str) -> str | None:
    if isinstance(error, SafetensorError | pickle.UnpicklingError | EOFError):
        return f"The weights of {name} are damaged or incomplete ({_first_line(error)}); copy or download them again."
    if isinstance(error, json.JSONDecodeError):
        return f"A JSON file of {name} is not valid JSON ({error}); copy or download it again."
    if isinstance(error, errors.StrictDataclassError):
        return f"The config.json of {name} holds a value that its architecture does not allow ({_one_line(error)})."
    if isinstance(error, OSError) and "no file named" in str(error):
        return f"{name} has a config.json but no weights (model.safetensors); copy or download them too."
    return None


def _model(error: BaseException, name: str) -> str | None:
    text = str(error)
    if isinstance(error, ValueError) and "trust_remote_code" in text:
        return (
            f"{name} comes with its own Python code, which Headwise does not run unasked; read that code, then load it "
            "with trust_remote_code=True."
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
            f"Parts of {name} are to stay on disk, and its files do not hold them as they are used, so they must be rewritten; "
            "say where with --offload FOLDER (offload_folder=)."
        )
    if isinstance(error, torch.OutOfMemoryError):
        return (
            f"{name} does not fit into the device's memory; use dtype='bfloat16', device_map='auto', or device='cpu'."
        )
    if isinstance(error, ImportError):
        return f"{name} needs a package that is not installed: {_first_line(error)}"
    return None


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())


def _first_line(error: BaseException) -> str:
    return str(error).strip().split("\n")[0].strip() or type(error).__name__


def is_path(name: str) -> bool:
    """Whether a name that is not there was meant as a path, not as a name on the hub."""
    return name.startswith((".", "~", os.sep)) or "\\" in name or name.endswith(".gguf")
