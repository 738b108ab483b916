"""Is this an atlas, and one that this Headwise reads?

Told by the attributes of its list. This module does not know what the studies hold.
"""

from __future__ import annotations

from headwise.atlas.places import Place
from headwise.atlas.root import ROOT, Root
from headwise.atlas.store import Store
from headwise.core.errors import AtlasError

__all__ = ["ATTRS", "refuse_other"]

FORMAT = "headwise-atlas"
FORMAT_VERSION = 1
WORKPLACE = ".swap"  # of unfinished things; only a folder that is an atlas has one
ATTRS = {"format": FORMAT, "format_version": FORMAT_VERSION}


def refuse_other(place: Place, store: Store) -> None:
    """AtlasError where there is nothing, or no atlas, or one of a later Headwise."""
    try:
        root = store.root()
    except ValueError:
        root = Root({}, {})
    if root is None:
        raise AtlasError(f"There is no atlas at {place}; make one with headwise build -o {place}.")
    known = {"format", "format_version"} <= root.attrs.keys() and root.attrs["format"] == FORMAT
    if not known and place.folder is not None and (place.folder / WORKPLACE).is_dir():
        raise AtlasError(
            f"The list of the atlas {place} ({ROOT}) is damaged; delete that file and run the same headwise build again, which "
            "lists the studies anew as their own folders have them."
        )
    if root.attrs.get("format") != FORMAT:
        raise AtlasError(
            f"{place} is not an atlas (no {ROOT} of the format {FORMAT!r} in it); give the folder that "
            "headwise build wrote, or build one with headwise build -o FOLDER."
        )
    version = root.attrs.get("format_version")
    if version != FORMAT_VERSION:
        raise AtlasError(
            f"The atlas {place} has format version {version}, and this Headwise reads version {FORMAT_VERSION}; "
            "use a newer Headwise (pip install -U headwise)."
        )
    if root.pending and place.folder is not None:
        raise AtlasError(
            f"{place} was copied from a store while {', '.join(root.pending)} was being put in its place there; "
            "open the atlas at its URL once, then copy it again."
        )
