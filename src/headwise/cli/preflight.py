"""Pre-flight checks: mistakes that can be found before anything heavy is loaded.

    headwise build --data nowhere.jsonl                        the file does not exist
    headwise build --studies profile --questions mine.csv      ignored option: profile asks no questions
    headwise build --studies profile --set spectral.k=50       ignored option: spectral is not measured
    headwise build --redo samples                              ignored option: samples is measured only on request
    headwise heads ATLAS --where layer < 3                     a condition that the shell split

Input files must exist and not be empty; output folders must be writable. An adapter or a reference model is a folder or
OWNER/NAME on the Hugging Face hub; a bare word that is no folder is refused, because an unreachable hub takes half a minute
to time out. With ``HF_HUB_OFFLINE`` set, names that are not in the local cache are refused, too.

The contents of files, and whether an adapter fits a model, are not checked here.
"""

from __future__ import annotations

import difflib
import errno
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from headwise.core.errors import AtlasError, DataError, ModelError, StudyError
from headwise.studies.registry import dataset_spec, default_studies, producers, with_dependencies
from headwise.studies.registry import studies as all_studies

if TYPE_CHECKING:
    import pandas as pd

    from headwise.atlas import Atlas

HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
CONFIGS = ("config.json", "adapter_config.json")
_REMOTE = re.compile(r"[a-z][a-z0-9]+:/")
NO_REFERENCE = "none"  # as --reference: compare with nothing
OPTION_INPUTS = {  # option -> the input of a study (`StudySpec.inputs`) that it changes
    "--data": "passages",
    "--questions": "questions",
    "--limit": "questions",
    "--one-means": "responses",
    "--endpoint": "responses",
    "--judge": "responses",
    "--relations": "relations",
    "--steps": "steps",
    "--reference": "reference",
}


# ---- files and folders ----------------------------------------------------------------------------------------------


def as_typed(atlas: Path) -> str:
    """An atlas as the user typed it: pathlib collapses the double slash of a URL.

    >>> as_typed(Path("s3://bucket/atlas")), as_typed(Path("my/atlas"))
    ('s3://bucket/atlas', 'my/atlas')
    """
    return re.sub(r"^([a-z][a-z0-9]+):/(?!/)", r"\1://", atlas.as_posix()) if _REMOTE.match(str(atlas)) else str(atlas)


def sibling_path(atlas: Path, ending: str) -> Path:
    """The path next to an atlas for files derived from it; in the current folder if the atlas is at a URL.

    >>> sibling_path(Path("s3://bucket/atlas"), "-report.html"), sibling_path(Path("/data/atlas"), "-figures").as_posix()
    (PosixPath('atlas-report.html'), '/data/atlas-figures')
    """
    if _REMOTE.match(str(atlas)):
        return Path(f"{atlas.name.partition('@')[0]}{ending}")
    folder = atlas if atlas.name not in ("", "..") else atlas.resolve()
    return folder.with_name(f"{folder.name}{ending}")


def refuse_missing_file(option: str, path: str | Path | None) -> None:
    """Refuse an input path that does not exist, or an empty file."""
    if path is None:
        return
    given = Path(path).expanduser()
    if given.exists():
        if given.is_file() and not given.stat().st_size:
            raise DataError(f"{option} names {str(path)!r}, but that file is empty; give a file that contains text.")
        return
    siblings = sorted(entry.name for entry in given.parent.iterdir()) if given.parent.is_dir() else []
    near = difflib.get_close_matches(given.name, siblings, n=1)
    hint = f"did you mean {str(given.parent / near[0])!r}?" if near else "check the path."
    raise DataError(f"{option} names {str(path)!r}, but there is no such file or folder; {hint}")


def refuse_unwritable(option: str, folder: Path) -> None:
    """Refuse a folder that cannot be created or written to; URLs are checked by the store that writes to them."""
    if _REMOTE.match(str(folder)):
        return
    lineage = (folder.absolute(), *folder.absolute().parents)
    existing = next(path for path in lineage if path.exists())
    if not existing.is_dir():
        problem = f"{existing} is a file, but a folder is needed; choose another folder with {option}."
    elif not os.access(existing, os.R_OK | os.W_OK | os.X_OK):
        problem = (
            f"{existing} is not readable and writable; change its permissions, or choose another folder with {option}."
        )
    elif existing != lineage[0] and (reason := _creation_error(lineage[lineage.index(existing) - 1])):
        raise AtlasError(f"Cannot create the folder {folder} ({reason}); choose another folder with {option}.")
    else:
        return
    raise AtlasError(f"Cannot write to {folder}: {problem}")


def _creation_error(folder: Path) -> str:
    """Why a folder cannot be created, found by trying; empty text if it can. The folder is removed again."""
    try:
        folder.mkdir()
        folder.rmdir()
    except FileExistsError:  # created by another process meanwhile
        return ""
    except OSError as error:
        return "the disk is full" if error.errno in (errno.ENOSPC, errno.EDQUOT) else error.strerror or str(error)
    return ""


def refuse_missing_model(option: str, name: str | None, configs: tuple[str, ...] = CONFIGS) -> None:
    """Refuse a model or adapter that is neither a folder with one of ``configs`` nor a name on the hub."""
    if name is None or name.lower() == NO_REFERENCE:
        return
    folder, expected = Path(name).expanduser(), " or ".join(configs)
    if folder.is_dir():
        if not any((folder / config).is_file() for config in configs):
            raise ModelError(f"{option} names the folder {name!r}, which has no {expected}; give the folder that does.")
        return
    if folder.is_file() or _is_cached(name):
        return
    if not HUB_ID.fullmatch(name):
        raise ModelError(
            f"{option} names {name!r}, but there is no such folder; give a folder that contains {expected}, or OWNER/NAME "
            "on the hub."
        )
    if os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE"):
        raise ModelError(
            f"{option} names {name!r}, which is neither a folder nor in the local Hugging Face cache, and HF_HUB_OFFLINE "
            "forbids downloads; check the spelling, or download it first."
        )


def _is_cached(name: str) -> bool:
    """Whether a model of this name was downloaded before, in the cache folder that huggingface_hub uses."""
    home = Path(os.environ.get("HF_HOME", Path(os.environ.get("XDG_CACHE_HOME", "~/.cache"), "huggingface")))
    cache = Path(os.environ.get("HF_HUB_CACHE", os.environ.get("HUGGINGFACE_HUB_CACHE", home / "hub")))
    return (cache.expanduser() / f"models--{name.replace('/', '--')}").is_dir()


# ---- ignored options ------------------------------------------------------------------------------------------------


def refuse_ignored_options(
    studies: Sequence[str] | None,
    given: Mapping[str, object],
    settings: Sequence[str] = (),
    redo: Sequence[str] = (),
) -> None:
    """Refuse options that no study of this build reads, since the user expects them to have an effect.

    ``given``: options and their values, None if not given; ``settings``: those of ``--set``, already validated.
    """
    measured = with_dependencies(default_studies() if studies is None else studies)
    for option, value in given.items():
        if value is not None and str(value).lower() != "none":
            _refuse_unread(option, measured)
    for setting in settings:
        study = setting.partition(".")[0].strip()
        if study not in measured:
            raise StudyError(
                f"--set {setting} is for the study {study}, but this build measures only {', '.join(measured)}; add {study} "
                "to --studies, or omit the setting."
            )
    for study in producers(redo):
        if study not in measured:
            raise StudyError(
                f"--redo names {study}, but this build measures only {', '.join(measured)}; add {study} to --studies, or "
                "omit it from --redo."
            )


def _refuse_unread(option: str, measured: Sequence[str]) -> None:
    """Refuse an option that changes an input which none of the measured studies has."""
    readers = {name for name, spec in all_studies().items() if OPTION_INPUTS[option] in spec.inputs}
    if readers.isdisjoint(measured):
        users = [study for study in all_studies() if not readers.isdisjoint(with_dependencies([study]))]
        raise StudyError(
            f"{option} is for {', '.join(users[:-1])} and {users[-1]}, but this build measures only {', '.join(measured)}; "
            f"add one of them to --studies, or omit {option}."
        )


# ---- columns of the head table --------------------------------------------------------------------------------------


def refuse_missing_studies(names: Sequence[str], frame: pd.DataFrame, atlas: Atlas) -> None:
    """Refuse columns of a study that is not in the atlas, and name the command that adds it."""
    present = {str(column).partition(".")[0] for column in frame.columns}
    for name in names:
        study = name.partition(".")[0]
        spec = dataset_spec(study)
        if "." not in name or spec is None or study in present:
            continue
        if study in atlas.studies:
            reader = spec.read_with or "headwise describe {atlas} {study}"
            raise DataError(
                f"there is no column {name!r}: the study {study} has no values per head; "
                f"read it with {reader.format(atlas=atlas.location, study=study)}."
            )
        raise DataError(
            f"there is no column {name!r}: the study {study} is not in the atlas; "
            f"add it with headwise build --studies {study} -o {atlas.location}."
        )


def refuse_unquoted(rest: Sequence[str], where: str | None) -> None:
    """Refuse surplus arguments, usually the rest of a condition without quotes."""
    if not rest:
        return
    surplus = " ".join(rest)
    if where is not None:
        raise DataError(
            f"--where received only {where!r}, and {surplus!r} was left over; put the whole condition in quotes: "
            f'--where "{where} {surplus}".'
        )
    raise DataError(f"heads takes one atlas, but {surplus!r} was left over; write: headwise heads ATLAS.")
