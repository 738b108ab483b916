"""Where an atlas is stored: a local folder, or a prefix of an object store (`s3://`, `gs://`, `az://`).

In reading order: ``location`` (the operations of every location, and how a path or URL becomes one), ``objects`` (object
stores, with their errors translated), ``lease`` (one writer at a time in an object store).
"""

from headwise.atlas.storage.location import LocalLocation, Location, is_url, open_location
from headwise.atlas.storage.objects import ObjectStoreLocation

__all__ = ["LocalLocation", "Location", "ObjectStoreLocation", "is_url", "open_location"]
