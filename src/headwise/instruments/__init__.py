"""Observers of attention heads: what each requests from a layer, what it costs, and what it reads."""

from headwise.instruments.activations import Activations
from headwise.instruments.answer_rows import ROW_STATISTICS, SHARES, AnswerRows, RunningAnswerRows
from headwise.instruments.drop_effects import AttentionDropEffects
from headwise.instruments.hidden_log_det import HiddenLogDet
from headwise.instruments.outputs import HeadOutputs, HeadValues, RawHeadOutputs
from headwise.instruments.pattern_statistics import PATTERN_STATISTICS, MapComparison, PatternStatistics
from headwise.instruments.patterns import Patterns, PooledMaps
from headwise.instruments.profile import STATISTICS, Profile
from headwise.instruments.running_spectrum import RunningSpectrum
from headwise.instruments.spectrum import PARTS, TOP_K, AnswerSpectrum, AttentionReceived, SinkScores, Spectrum

__all__ = [
    "PARTS",
    "PATTERN_STATISTICS",
    "ROW_STATISTICS",
    "SHARES",
    "STATISTICS",
    "TOP_K",
    "Activations",
    "AnswerRows",
    "AnswerSpectrum",
    "AttentionDropEffects",
    "AttentionReceived",
    "HeadOutputs",
    "HeadValues",
    "HiddenLogDet",
    "MapComparison",
    "PatternStatistics",
    "Patterns",
    "PooledMaps",
    "Profile",
    "RawHeadOutputs",
    "RunningAnswerRows",
    "RunningSpectrum",
    "SinkScores",
    "Spectrum",
]  # fmt: skip
