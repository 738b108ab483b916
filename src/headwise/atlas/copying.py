"""How does an atlas get from one place to another: from a folder into an object store, or back?

Study by study: each is read and verified, then written as a new one is, whole or not at all; so a copy that was broken off is
an atlas of fewer studies, and the same command goes on. What a study leaves beside its numbers (the fitted detector) goes
first, as it does when it is built. Studies that are there already with the same provenance and time are left.

Cost: one reading and one writing. This module does not know what a study holds.
"""

from __future__ import annotations

from headwise.atlas.places import Place
from headwise.atlas.root import Listing
from headwise.atlas.store import Store
from headwise.core.errors import AtlasError
from headwise.core.provenance import Provenance

__all__ = ["BESIDE", "copy_studies"]

BESIDE = ("detector.json", "detector.safetensors")  # what a study leaves beside its numbers


def copy_studies(source: tuple[Place, Store], target: tuple[Place, Store]) -> None:
    """Put all studies of one atlas into another; AtlasError where that is of another model."""
    (here, reading), (there, writing) = source, target
    wanted, found = reading.listing(), writing.listing()
    if len(_models(wanted) | _models(found)) > 1:
        raise AtlasError(f"{there} is an atlas of another model than {here}; choose a new place.")
    for name in BESIDE:
        content = here.read(name)
        if content is not None:
            there.write(name, content)
    for study in reading.studies():
        if wanted.get(study) is None or wanted[study] != found.get(study):
            writing.write(study, reading.read(study))


def _models(nodes: Listing) -> set[str]:
    """The digests of the models that studies are of."""
    studies = (node for path, node in nodes.items() if "/" not in path)
    return {str(Provenance.from_attrs(node.get("attributes", {})).model.get("digest")) for node in studies}
