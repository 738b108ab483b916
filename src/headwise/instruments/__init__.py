"""Observers of attention heads, one a file: what each asks of a layer, what it costs, what it reads."""

from headwise.instruments.answers import FEW, PARTS, AnswerSpectrum
from headwise.instruments.outputs import HeadOutputs
from headwise.instruments.patterns import Patterns
from headwise.instruments.profile import STATISTICS, Profile
from headwise.instruments.received import Received
from headwise.instruments.sites import Sites
from headwise.instruments.spectrum import Spectrum
from headwise.instruments.values import HeadValues

__all__ = [
    "FEW",
    "PARTS",
    "STATISTICS",
    "AnswerSpectrum",
    "HeadOutputs",
    "HeadValues",
    "Patterns",
    "Profile",
    "Received",
    "Sites",
    "Spectrum",
]
