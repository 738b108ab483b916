"""An atlas on the Hugging Face hub: how does it get there whole, and come back as it was?

Pushing is one commit to a dataset repository: the atlas's list, the files of the studies that the list names, the fitted
detector if there is one, and a README; what the repository held of an earlier atlas and this one has not is deleted in the
same commit. Never ``.swap`` nor ``.shards``: what is not finished is not part of an atlas. Swaps are held off meanwhile, so
that a study that is being replaced goes up as it was or waits.

Opening downloads a revision into the hub's own cache (files that are there already are not asked for again) and then reads
every study once, so that each chunk meets its checksum; what is damaged is fetched anew once, and refused if it is damaged on
the hub. An address is ``hf://datasets/OWNER/NAME`` with ``@REVISION`` behind it, if it is not the main branch.

Cost: the size of the atlas over the network, and one reading. Tokens are huggingface_hub's matter (``hf auth login``). This
module does not know what a study holds.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import huggingface_hub as hf  # light: it loads its parts when they are first used

from headwise.atlas import store, swap
from headwise.atlas.copying import BESIDE
from headwise.atlas.root import ROOT
from headwise.core.errors import AtlasError

__all__ = ["Address", "fetch", "push"]

README = "README.md"
KEPT = (README, ".gitattributes")  # of a repository, never deleted
_ADDRESS = re.compile(r"hf:/{1,2}datasets/([\w.-]+/[\w.-]+)(?:@(.+))?")  # a pathlib.Path makes one slash of two


@dataclass(frozen=True)
class Address:
    """A dataset repository of the hub, at a branch, tag or commit."""

    repo_id: str
    revision: str | None = None

    @classmethod
    def parse(cls, text: str) -> Address | None:
        """From ``hf://datasets/owner/name@revision``; None where the text is no address at all.

        >>> Address.parse("hf://datasets/me/atlas@v1"), Address.parse("atlas")
        (Address(repo_id='me/atlas', revision='v1'), None)
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


def push(atlas: Path, to: Address, readme: str, *, private: bool | None = None, token: str | None = None) -> str:
    """Make the repository (and the branch) where there is none, put the atlas into it by one commit; its web address."""
    api = hf.HfApi(token=token)
    verify(atlas)
    with _in_words(to), swap.settled(atlas):
        api.create_repo(to.repo_id, repo_type="dataset", private=private, exist_ok=True)
        if to.revision:
            api.create_branch(to.repo_id, branch=to.revision, repo_type="dataset", exist_ok=True)
        files = {path.relative_to(atlas).as_posix(): path for path in committed(atlas)}
        there = api.list_repo_files(to.repo_id, repo_type="dataset", revision=to.revision)
        operations: list[Any] = [hf.CommitOperationAdd(README, readme.encode())]
        operations += [hf.CommitOperationAdd(name, path) for name, path in files.items()]
        operations += [hf.CommitOperationDelete(name) for name in there if name not in files and name not in KEPT]
        names = ", ".join(swap.studies(atlas)) or "nothing yet"
        done = api.create_commit(
            to.repo_id, operations, commit_message=f"Headwise atlas: {names}", repo_type="dataset", revision=to.revision
        )
    return str(done.repo_url)


def committed(atlas: Path) -> list[Path]:
    """The files of an atlas that are finished: its list, every listed study, and what stands beside."""
    studies = [atlas / study for study in swap.studies(atlas)]
    inside = [path for study in studies for path in sorted(study.rglob("*")) if path.is_file()]
    return [atlas / ROOT, *inside, *(atlas / name for name in BESIDE if (atlas / name).is_file())]


def fetch(address: Address, *, token: str | None = None) -> Path:
    """The folder of an atlas of the hub, every byte of it verified."""
    folder = _download(address, token, anew=False)
    try:
        verify(folder)
    except AtlasError:
        folder = _download(address, token, anew=True)
        try:
            verify(folder)
        except AtlasError as error:
            raise AtlasError(f"{address} is damaged on the hub ({error}); ask its owner to push it again.") from error
    return folder


def _download(address: Address, token: str | None, *, anew: bool) -> Path:
    with _in_words(address):
        return Path(
            hf.snapshot_download(
                address.repo_id, repo_type="dataset", revision=address.revision, token=token, force_download=anew
            )
        )


def verify(folder: Path) -> None:
    """Read every study of an atlas; AtlasError where one is damaged."""
    if (folder / ROOT).exists():  # without it, it is no atlas, which whoever opens the folder says
        for study in swap.studies(folder):
            store.read_study(folder, study)


@contextlib.contextmanager
def _in_words(address: Address) -> Iterator[None]:
    """What the hub refuses, in one sentence with the remedy."""
    try:
        yield
    except AtlasError:
        raise
    except Exception as error:  # the hub's own kinds, and those of the HTTP library of its version
        said = _sentence(error, address)
        if said is None:
            raise
        raise AtlasError(said) from error


def _sentence(error: Exception, address: Address) -> str | None:
    place = address.repo_id
    if isinstance(error, hf.errors.GatedRepoError):
        return f"{place} is gated: accept its terms at {hf.constants.ENDPOINT}/datasets/{place}, then `hf auth login`."
    if isinstance(error, hf.errors.RevisionNotFoundError):
        return f"{place} has no revision {address.revision!r} on the hub; look at its branches and commits there."
    if isinstance(error, hf.errors.HFValidationError):
        return f"{place!r} cannot be a name on the hub ({_first_line(error)}); write OWNER/NAME."
    if isinstance(error, hf.errors.RepositoryNotFoundError):
        return (
            f"There is no dataset {place} on the hub that you may read or write; check the spelling, or log in with "
            "`hf auth login` if it is private."
        )
    if isinstance(error, hf.errors.LocalEntryNotFoundError | ConnectionError) or _unanswered(error):
        why = "the hub is switched off (HF_HUB_OFFLINE)" if hf.constants.is_offline_mode() else "the hub did not answer"
        cached = isinstance(error, hf.errors.LocalEntryNotFoundError)
        beside = f", and it is not in the cache ({hf.constants.HF_HUB_CACHE})" if cached else ""
        return f"{place} cannot be reached: {why}{beside}; connect to the network."
    if isinstance(error, hf.errors.LocalTokenNotFoundError) or _status(error) in (401, 403):
        return (
            f"The hub does not let you write or read {place}; log in with `hf auth login` (a token with write access to "
            "push), or give token=."
        )
    if isinstance(error, hf.errors.HfHubHTTPError):
        return f"The hub refused {place}: {_first_line(error)}; try again, or look at its status page."
    return None


def _unanswered(error: Exception) -> bool:
    """Whether the network failed: every HTTP library that the hub's client has used calls it so."""
    return any(kind.__name__ == "TransportError" for kind in type(error).__mro__)


def _status(error: Exception) -> int | None:
    return getattr(getattr(error, "response", None), "status_code", None)


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
