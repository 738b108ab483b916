"""An atlas on the Hugging Face hub: pushed in one commit, and downloaded with every byte verified.

A push commits the metadata, the files of the listed studies, the artifacts (such as the fitted detector) and a README to a
dataset repository, and deletes in the same commit the files of an earlier atlas that this one does not have. ``.swap`` and
``.shards`` never go up. A read lock is held meanwhile, so that the commit is one consistent state.

Opening downloads a revision into the hub's own cache (cached files are not requested again) and reads every study once, so
that each chunk meets its checksum; a corrupt download is repeated once, and refused if the hub's copy is corrupt. An address
is ``hf://datasets/OWNER/NAME``, with ``@REVISION`` if it is not the main branch.

Cost: the size of the atlas over the network, and one read. huggingface_hub handles the tokens (``hf auth login``).
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import huggingface_hub as hf  # light: it loads its parts when they are first used

from headwise.atlas.format import ROOT
from headwise.atlas.local_store import LocalStore
from headwise.atlas.plain_files import list_plain, read_plain, refuse_links
from headwise.atlas.store import ARTIFACTS
from headwise.core.errors import AtlasError

__all__ = ["HubAddress", "fetch", "push"]

README = "README.md"
NEVER_DELETED = (README, ".gitattributes")
_ADDRESS = re.compile(r"hf:/{1,2}datasets/([\w.-]+/[\w.-]+)(?:@(.+))?")  # a pathlib.Path makes one slash of two


@dataclass(frozen=True)
class HubAddress:
    """A dataset repository of the hub, at a branch, tag or commit."""

    repo_id: str
    revision: str | None = None

    @classmethod
    def parse(cls, text: str) -> HubAddress | None:
        """From ``hf://datasets/owner/name@revision``; None if the text is not a hub address.

        >>> HubAddress.parse("hf://datasets/me/atlas@v1"), HubAddress.parse("atlas")
        (HubAddress(repo_id='me/atlas', revision='v1'), None)
        """
        if not text.startswith("hf:/"):
            return None
        match = _ADDRESS.fullmatch(text.rstrip("/"))
        if match is None:
            raise AtlasError(
                f"{text!r} is not an atlas on the hub; write it as hf://datasets/OWNER/NAME, or with @REVISION."
            )
        return cls(match[1], match[2])

    def __str__(self) -> str:
        return f"hf://datasets/{self.repo_id}" + (f"@{self.revision}" if self.revision else "")


def push(atlas: Path, to: HubAddress, readme: str, *, private: bool | None = None, token: str | None = None) -> str:
    """Push the atlas in one commit, creating the repository and the branch if needed; returns the web address."""
    api = hf.HfApi(token=token)
    verify(atlas)
    store = LocalStore(atlas)
    with _translate_hub_errors(to), store.read_lock():
        api.create_repo(to.repo_id, repo_type="dataset", private=private, exist_ok=True)
        if to.revision:
            api.create_branch(to.repo_id, branch=to.revision, repo_type="dataset", exist_ok=True)
        files = committed_files(atlas)
        remote = api.list_repo_files(to.repo_id, repo_type="dataset", revision=to.revision)
        operations: list[Any] = [hf.CommitOperationAdd(README, readme.encode())]
        operations += [hf.CommitOperationAdd(name, path) for name, path in files.items()]
        deleted = [name for name in remote if name not in files and name not in NEVER_DELETED]
        operations += [hf.CommitOperationDelete(name) for name in deleted]
        names = ", ".join(sorted(store.study_folders())) or "nothing yet"
        commit = api.create_commit(
            to.repo_id, operations, commit_message=f"Headwise atlas: {names}", repo_type="dataset", revision=to.revision
        )
    return str(commit.repo_url)


def committed_files(atlas: Path) -> dict[str, Path]:
    """The files of an atlas that are committed, key -> path: its metadata, every study, and the artifacts."""
    store = LocalStore(atlas)
    store.recover()
    inside = [key for study in sorted(store.study_folders()) for key in list_plain(atlas, study)]
    keys = [ROOT, *inside, *(name for name in ARTIFACTS if read_plain(atlas, name) is not None)]
    return {key: refuse_links(atlas, key) for key in keys}


def fetch(address: HubAddress, *, token: str | None = None) -> Path:
    """Download an atlas; the local folder, every byte verified."""

    def download(*, force: bool) -> Path:
        with _translate_hub_errors(address):
            folder = hf.snapshot_download(
                address.repo_id, repo_type="dataset", revision=address.revision, token=token, force_download=force
            )
            return Path(folder)

    folder = download(force=False)
    try:
        verify(folder)
    except AtlasError:
        folder = download(force=True)
        try:
            verify(folder)
        except AtlasError as error:
            raise AtlasError(f"{address} is damaged on the hub ({error}); ask its owner to push it again.") from error
    return folder


def verify(folder: Path) -> None:
    """Read every study of an atlas; AtlasError if one is corrupt, or not one that Headwise writes."""
    if (folder / ROOT).exists():  # without it, it is not an atlas: opening the folder reports that
        store = LocalStore(folder)
        for study in store.studies():
            store.read(study)


@contextlib.contextmanager
def _translate_hub_errors(address: HubAddress) -> Iterator[None]:
    """Raise the hub's errors as AtlasError, with the remedy."""
    try:
        yield
    except AtlasError:
        raise
    except Exception as error:  # huggingface_hub's own classes, and those of its HTTP library
        message = _error_message(error, address)
        if message is None:
            raise
        raise AtlasError(message) from error


def _error_message(error: Exception, address: HubAddress) -> str | None:
    name = address.repo_id
    first_line = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
    if isinstance(error, hf.errors.GatedRepoError):
        return f"{name} is gated: accept its terms at {hf.constants.ENDPOINT}/datasets/{name}, then `hf auth login`."
    if isinstance(error, hf.errors.RevisionNotFoundError):
        return f"{name} has no revision {address.revision!r} on the hub; look at its branches and commits there."
    if isinstance(error, hf.errors.HFValidationError):
        return f"{name!r} cannot be a name on the hub ({first_line}); write OWNER/NAME."
    if isinstance(error, hf.errors.RepositoryNotFoundError):
        return (
            f"There is no dataset {name} on the hub that you may read or write; check the spelling, or log in with "
            "`hf auth login` if it is private."
        )
    # every HTTP library that huggingface_hub has used calls a network failure TransportError
    unreachable = any(kind.__name__ == "TransportError" for kind in type(error).__mro__)
    if unreachable or isinstance(error, hf.errors.LocalEntryNotFoundError | ConnectionError):
        why = "the hub is switched off (HF_HUB_OFFLINE)" if hf.constants.is_offline_mode() else "the hub did not answer"
        uncached = isinstance(error, hf.errors.LocalEntryNotFoundError)
        cache = f", and it is not in the cache ({hf.constants.HF_HUB_CACHE})" if uncached else ""
        return f"{name} cannot be reached: {why}{cache}; connect to the network."
    status = getattr(getattr(error, "response", None), "status_code", None)
    if isinstance(error, hf.errors.LocalTokenNotFoundError) or status in (401, 403):
        return (
            f"The hub does not let you write or read {name}; log in with `hf auth login` (a token with write access to "
            "push), or give token=."
        )
    if isinstance(error, hf.errors.HfHubHTTPError):
        return f"The hub refused {name}: {first_line}; try again, or look at its status page."
    return None
