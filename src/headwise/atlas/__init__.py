"""THE WAIST: the result of measuring, and the only thing that is shown.

In reading order: ``provenance`` (where numbers come from), ``schema`` and ``schemas`` (what a Dataset must look like),
``disk``, ``encoding``, ``swap`` and ``store`` (how it survives), ``record`` and ``selection`` (one row a head),
``atlas``. Neither torch nor transformers is imported here.
"""

from headwise.atlas.atlas import Atlas
from headwise.atlas.places import Place, place_of
from headwise.atlas.record import heads
from headwise.atlas.schema import Schema, check
from headwise.atlas.schemas import SCHEMAS
from headwise.atlas.selection import select
from headwise.atlas.store import pack, read_file, read_study, unpack, write_file, write_study
from headwise.core.provenance import Provenance, difference

__all__ = [
    "SCHEMAS", "Atlas", "Place", "Provenance", "Schema", "check", "difference", "heads", "pack", "place_of", "read_file",
    "read_study", "select", "unpack", "write_file", "write_study",
]  # fmt: skip
