"""THE WAIST: the result of measuring, and the only thing that is shown.

In reading order: ``provenance`` (where numbers come from), ``schema`` and ``schemas`` (what a Dataset must look like),
``disk``, ``encoding``, ``swap`` and ``store`` (how it survives), ``record`` and ``selection`` (one row a head),
``atlas``. Neither torch nor transformers is imported here.
"""

from headwise.atlas.atlas import Atlas
from headwise.atlas.provenance import Provenance, difference
from headwise.atlas.record import heads
from headwise.atlas.schema import Schema, check
from headwise.atlas.schemas import SCHEMAS
from headwise.atlas.selection import select
from headwise.atlas.store import read_file, read_study, write_file, write_study

__all__ = [
    "SCHEMAS", "Atlas", "Provenance", "Schema", "check", "difference", "heads", "read_file", "read_study", "select",
    "write_file", "write_study",
]  # fmt: skip
