"""Observers of attention heads, one a file: what each asks of a layer, what it costs, what it reads."""

from headwise.instruments.answers import FEW, PARTS, AnswerSpectrum
from headwise.instruments.dropped import Dropped
from headwise.instruments.map_comparison import MapComparison
from headwise.instruments.outputs import HeadOutputs
from headwise.instruments.pattern_numbers import NUMBERS, PatternNumbers
from headwise.instruments.patterns import Patterns
from headwise.instruments.pooled_maps import PooledMaps
from headwise.instruments.profile import STATISTICS, Profile
from headwise.instruments.received import Received
from headwise.instruments.sites import Sites
from headwise.instruments.spectrum import Spectrum
from headwise.instruments.streams import HeadStreams
from headwise.instruments.values import HeadValues

__all__ = [
    "FEW",
    "NUMBERS",
    "PARTS",
    "STATISTICS",
    "AnswerSpectrum",
    "Dropped",
    "HeadOutputs",
    "HeadStreams",
    "HeadValues",
    "MapComparison",
    "PatternNumbers",
    "Patterns",
    "PooledMaps",
    "Profile",
    "Received",
    "Sites",
    "Spectrum",
]
