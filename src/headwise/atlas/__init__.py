"""THE WAIST: the result of measuring, and the only input of everything that shows results.

In reading order: ``storage`` (folders and object stores); ``disk``, ``encoding``, ``format`` (bytes, Zarr, consolidated
metadata); ``local_store``, ``object_store``, ``store`` (atomic commits); ``head_table`` and ``selection`` (one row per head);
``hub``, ``cards``, ``atlas``. The shape of each study's Dataset is in its spec (``headwise.studies``).

Neither torch nor transformers is imported here. Names are loaded when first used, so that importing one module of this
package does not load the others.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # for editors, type checkers and the reference; at run time `__getattr__` loads them
    from headwise.atlas.atlas import Atlas
    from headwise.atlas.encoding import pack, unpack
    from headwise.atlas.head_table import heads
    from headwise.atlas.selection import select
    from headwise.atlas.storage import Location, open_location
    from headwise.core.provenance import Provenance, difference

_MODULES = {
    "headwise.atlas.atlas": ("Atlas",),
    "headwise.atlas.encoding": ("pack", "unpack"),
    "headwise.atlas.head_table": ("heads",),
    "headwise.atlas.selection": ("select",),
    "headwise.atlas.storage": ("Location", "open_location"),
    "headwise.core.provenance": ("Provenance", "difference"),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}

__all__ = [
    "Atlas", "Location", "Provenance", "difference", "heads", "open_location", "pack", "select", "unpack",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"headwise.atlas has no {name!r}; it has {', '.join(__all__)}")
    value = getattr(import_module(_MODULE_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
