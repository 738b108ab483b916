"""THE WAIST: the result of measuring, and the only input of everything that shows results.

In reading order: ``storage`` (folders and object stores); ``disk``, ``packing``, ``encoding``, ``format`` (bytes, Zarr,
consolidated metadata); ``local_store``, ``object_store``, ``store`` (atomic commits); ``head_table`` and ``selection`` (one row
per head); ``hub``, ``cards``, ``atlas``; ``training_atlas`` (atlases of checkpoints, joined). The shape of each study's Dataset
is in its spec (``headwise.studies``).

Neither torch nor transformers is imported here. Names are loaded when first used, so that importing one module of this
package does not load the others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwise.core.lazy import lazy_exports

if TYPE_CHECKING:  # for editors, type checkers and the reference; at run time `__getattr__` loads them
    from headwise.atlas.atlas import Atlas
    from headwise.atlas.head_table import heads
    from headwise.atlas.packing import pack, unpack
    from headwise.atlas.selection import select
    from headwise.atlas.storage import Location, open_location
    from headwise.atlas.training_atlas import TrainingAtlas
    from headwise.core.provenance import Provenance, difference

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        ".atlas": "Atlas",
        ".packing": "pack unpack",
        ".head_table": "heads",
        ".selection": "select",
        ".storage": "Location open_location",
        ".training_atlas": "TrainingAtlas",
        "headwise.core.provenance": "Provenance difference",
    },
)

__all__ = [
    "Atlas", "Location", "Provenance", "TrainingAtlas", "difference", "heads", "open_location", "pack", "select", "unpack",
]  # fmt: skip
