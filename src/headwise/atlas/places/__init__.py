"""Where an atlas lies: a local folder, or a prefix of an object store (`s3://`, `gs://`, `az://`).

In reading order: ``place`` (the few verbs that all places have), ``folder`` and ``objects`` (the two kinds), ``refusals``
(what a store says no to, in words), ``lease`` (one writer at a time), ``address`` (from what the user typed to a place).
"""

from headwise.atlas.places.address import is_url, place_of
from headwise.atlas.places.folder import Folder
from headwise.atlas.places.objects import Objects
from headwise.atlas.places.place import Place

__all__ = ["Folder", "Objects", "Place", "is_url", "place_of"]
