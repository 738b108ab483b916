"""Deprecated alias of `headwise.core.provenance`; removed in the next release."""

import warnings

from headwise.core.provenance import ATTRIBUTE, Provenance, difference, environment

__all__ = ["ATTRIBUTE", "Provenance", "difference", "environment"]

warnings.warn("headwise.atlas.provenance has moved to headwise.core.provenance", DeprecationWarning, stacklevel=2)
