"""Is what the command line names there, and is there room for what is made? Asked before anything heavy is loaded.

A file or folder must exist, and a file must hold something. What is made must find room where it goes: a folder that may
be written to, and no file in its way. An adapter, or a model to compare with, is a folder or a name on the hub, written
owner/name; a bare word that is no folder is taken for a slip, because asking the hub for it takes half a minute where it does
not answer. With ``HF_HUB_OFFLINE`` set, a name that is not in the local cache is refused, too.

What is inside a file, and whether an adapter fits a model, is not looked at here.
"""

from __future__ import annotations

import difflib
import os
import re
from pathlib import Path

from headwise.core.errors import AtlasError, DataError, ModelError

__all__ = ["beside", "refuse_missing_file", "refuse_missing_model", "refuse_unwritable", "typed"]

HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
CONFIGS = ("config.json", "adapter_config.json")
_REMOTE = re.compile(r"[a-z][a-z0-9]+:/")
NOTHING = "none"  # as --against: compare with nothing


def typed(atlas: Path) -> str:
    """An atlas as the user typed it; a Path makes one slash of the two of a URL.

    >>> typed(Path("s3://bucket/atlas")), typed(Path("my/atlas"))
    ('s3://bucket/atlas', 'my/atlas')
    """
    return re.sub(r"^([a-z][a-z0-9]+):/(?!/)", r"\1://", atlas.as_posix()) if _REMOTE.match(str(atlas)) else str(atlas)


def beside(atlas: Path, ending: str) -> Path:
    """Where to put what is made from an atlas: beside its folder; in the current folder where it lies at a URL.

    >>> beside(Path("s3://bucket/atlas"), "-report.html"), beside(Path("/data/atlas"), "-figures").as_posix()
    (PosixPath('atlas-report.html'), '/data/atlas-figures')
    """
    if _REMOTE.match(str(atlas)):
        return Path(f"{atlas.name.partition('@')[0]}{ending}")
    folder = atlas if atlas.name not in ("", "..") else atlas.resolve()
    return folder.with_name(f"{folder.name}{ending}")


def refuse_missing_file(option: str, place: str | Path | None) -> None:
    """A file or folder of the user's own that is not there, or a file with nothing in it."""
    if place is None:
        return
    if Path(place).expanduser().exists():
        if Path(place).expanduser().is_file() and not Path(place).expanduser().stat().st_size:
            raise DataError(
                f"{option} names {str(place)!r}, and that file is empty: it holds no text; give one that does."
            )
        return
    folder = Path(place).expanduser().parent
    there = sorted(entry.name for entry in folder.iterdir()) if folder.is_dir() else []
    near = difflib.get_close_matches(Path(place).name, there, n=1)
    hint = f"did you mean {str(folder / near[0])!r}?" if near else "check the path."
    raise DataError(f"{option} names {str(place)!r}, and there is no such file or folder; {hint}")


def refuse_unwritable(option: str, folder: Path) -> None:
    """A folder that cannot be made or written to; a URL is looked at by who writes there."""
    if _REMOTE.match(str(folder)):
        return
    there = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    if not there.is_dir():
        what = f"{there} is a file where a folder is needed; choose another folder with {option}."
    elif not os.access(there, os.R_OK | os.W_OK | os.X_OK):
        what = (
            f"{there} may not be read and written to; change its permissions, or choose another folder with {option}."
        )
    else:
        return
    raise AtlasError(f"Nothing can be written to {folder}: {what}")


def refuse_missing_model(option: str, name: str | None, configs: tuple[str, ...] = CONFIGS) -> None:
    """An adapter (``configs``: what its folder holds) or a model that is neither a folder nor a name on the hub."""
    if name is None or name.lower() == NOTHING:
        return
    folder, wanted = Path(name).expanduser(), " or ".join(configs)
    if folder.is_dir():
        if not any((folder / config).is_file() for config in configs):
            raise ModelError(f"{option} names the folder {name!r}, which holds no {wanted}; give the folder that does.")
        return
    if folder.is_file() or _cached(name):
        return
    if not HUB_ID.fullmatch(name):
        raise ModelError(
            f"{option} names {name!r}, and there is no such folder; give a folder that holds {wanted}, or a name on the hub "
            "as owner/name."
        )
    if os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE"):
        raise ModelError(
            f"{option} names {name!r}, which is neither a folder nor in the local Hugging Face cache, and the hub is switched "
            "off (HF_HUB_OFFLINE); check the spelling, or download it first."
        )


def _cached(name: str) -> bool:
    """Whether something of this name was downloaded before; where the cache is, as huggingface_hub looks for it."""
    home = Path(os.environ.get("HF_HOME", Path(os.environ.get("XDG_CACHE_HOME", "~/.cache"), "huggingface")))
    cache = Path(os.environ.get("HF_HUB_CACHE", os.environ.get("HUGGINGFACE_HUB_CACHE", home / "hub")))
    return (cache.expanduser() / f"models--{name.replace('/', '--')}").is_dir()
