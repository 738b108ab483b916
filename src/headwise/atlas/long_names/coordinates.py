"""What the coordinates are that several studies share. This file does not know how anything is measured."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["COORDINATES"]

COORDINATES: Mapping[str, str] = {
    "example": "one text, or one question with its answer",
    "layer": "layer, 0 next to the embedding",
    "head": "query head of the layer, from 0",
    "query": "position of the token that looks",
    "key": "position of the token that is looked at",
    "pooled_query": "stretch of queries in a map drawn smaller",
    "pooled_key": "stretch of keys in a map drawn smaller",
    "token": "position in a text, or a named one",
    "rank": "place in a sorted list, 0 is the largest",
    "statistic": "statistic of a head's attention",
    "feature": "number that is tested or compared",
    "site": "where in a block an activation was taken",
    "width": "entry of an activation vector",
    "relation": "relation between a source and a target token",
    "category": "category of relations",
    "function": "cognitive function of a step",
    "fold": "fold of the cross-validation",
    "part": "part of a question with its answer that was looked at: whole or answer",
    "detector": "way to score an answer",
    "topic": "topic of a question",
    "trained_on": "topic that was fitted on",
    "size": "answers fitted on",
    "target": "place among the tokens that a head maps a token to, 0 is the strongest",
    "vocabulary": "token id",
    "task": "few-shot task",
    "control": "other task, asked without this task's heads",
    "removed": "number of heads switched off [heads]",
    "draw": "one of several random choices",
    "strategy": "way to choose among sampled answers",
    "error_type": "way to err on a question",
    "subject": "which of two models, or of two conditions of one",
    "seed": "seed of a probe whose start is random",
    "predicted": "function that the probe names",
    "masked": "function whose heads are masked",
    "unit": "what a circuit is made of: heads or edges",
    "kept": "place among the sizes of a circuit, smallest first",
    "rule": "rule by which attention weights are dropped",
    "amount": "length of the added direction, in standard deviations along it",
    "label": "name for a reader",
    "definition": "definition in words",
    "register": "kind of text",
}
