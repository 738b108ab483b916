"""The words for dimensions, and the names of heads. No other file spells them differently.

Beyond the seam every array is an xarray object whose dims come from here, so that maps of two studies align
by name. A head is written ``L{layer}H{head}``, both counted from 0, as TransformerLens does.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from headwise.core.errors import DataError

EXAMPLE = "example"  # one text, or one question with its answer
LAYER = "layer"  # 0 is the layer next to the embedding
HEAD = "head"  # query heads
KV_HEAD = "kv_head"  # the heads that hold keys and values; query head h reads kv head h // (heads / kv_heads)
QUERY = "query"  # the token that attends
KEY = "key"  # the token that is attended to
TOKEN = "token"  # a position in a text, or a named position such as "last_q"
RANK = "rank"  # index in a sorted list, 0 is the largest
STATISTIC = "statistic"  # a statistic of a head, such as "entropy"
FEATURE = "feature"  # a feature that is tested, such as "laplacian"
SITE = "site"  # where in a block an activation was taken
WIDTH = "width"  # entries of an activation vector
RELATION = "relation"
CATEGORY = "category"
FUNCTION = "function"
FOLD = "fold"
PART = "part"  # of a question with its answer: "whole" or "answer"
DETECTOR = "detector"  # one way to score an answer
TOPIC = "topic"  # of a question
TRAINED_ON = "trained_on"  # the topic or question set a detector was fitted on
OTHERS = "others"  # its entry for a detector that was fitted on all but the one tested on
TESTED_ON = "tested_on"  # the question set it is tested on
SIZE = "size"  # how many examples a detector was fitted on
TARGET = "target"  # one of the tokens that a head maps a token to, 0 is the strongest
VOCABULARY = "vocabulary"  # tokens by id, those that a map names
PLACE = "place"  # one of several chosen heads, named L{l}H{h}
TASK = "task"  # a relation, as few-shot prompts that the model completes
CONTROL = "control"  # another task, measured next to the one whose heads are changed
REMOVED = "removed"  # number of ablated heads
DRAW = "draw"  # one of several random choices
STRATEGY = "strategy"  # a way to choose among sampled answers
ERROR_TYPE = "error_type"  # a type of error on a question, found from many samples
CONDITION = "condition"  # which of two models, or of two conditions of one, is measured
POOLED_QUERY = "pooled_query"  # a stretch of queries, in a map drawn smaller
POOLED_KEY = "pooled_key"  # a stretch of keys
SEED = "seed"  # one fit of a probe whose start is random
PREDICTED = "predicted"  # the function that a probe predicts
MASKED = "masked"  # the function whose heads are masked
UNIT = "unit"  # what a circuit consists of: "heads" or "edges"
CIRCUIT_SIZE = "circuit_size"  # one of several sizes of a circuit, from the smallest on
RULE = "rule"  # a way to drop attention weights at inference, and how far
AMOUNT = "amount"  # how much of a direction is added to a head
ABLATION = "ablation"  # what a head's output is replaced by: "mean" or "resample"
SHARE = "share"  # how much of an answer has been written: 0.5 is half of its tokens
PREFIX = "prefix"  # a beginning of an answer
TOKEN_CLASS = "token_class"  # a kind of token that is predicted, such as "repeated" or "name"
COVERAGE = "coverage"  # share of the answers that are given, those with the lowest scores; the others are withheld
QUESTION_SET = "question_set"  # a set of questions, such as triviaqa
COST_CLASS = "cost_class"  # what a score of an answer costs beyond the answer: nothing, a pass, several samples
MEASURE = "measure"  # what is compared with and without a head, such as the share of correct answers
HEAD_SET = "head_set"  # several heads that are ablated together, or that a study names
OTHER_SET = "other_set"  # a head set that another is compared with
COLUMN = "column"  # of the head table, such as "profile.sink"
DEPTH = "depth"  # a band of layers; 0 is the first layer, 1 the last
STEP = "step"  # of training, at which a checkpoint was saved

DIMS = frozenset(
    (
        EXAMPLE, LAYER, HEAD, KV_HEAD, QUERY, KEY, TOKEN, RANK, STATISTIC, FEATURE, SITE, WIDTH,
        RELATION, CATEGORY, FUNCTION, FOLD, PART, DETECTOR, TOPIC, TRAINED_ON, TESTED_ON, SIZE, PLACE,
        TARGET, VOCABULARY,
        TASK, CONTROL, REMOVED, DRAW, STRATEGY, ERROR_TYPE,
        CONDITION, POOLED_QUERY, POOLED_KEY,
        SEED, PREDICTED, MASKED, AMOUNT, UNIT, CIRCUIT_SIZE, RULE,
        ABLATION, SHARE, PREFIX, TOKEN_CLASS, COVERAGE, COST_CLASS, QUESTION_SET, MEASURE, HEAD_SET, STEP,
        OTHER_SET, COLUMN, DEPTH,
    )
)  # fmt: skip

_HEAD_NAME = re.compile(r"L(\d{1,6})H(\d{1,6})", re.IGNORECASE)


def head_name(layer: int, head: int) -> str:
    """How a head is called: layer and head, counted from 0.

    Args:
        layer: its layer.
        head: its index in the layer.

    Returns:
        The name.

    Examples:
        >>> head_name(3, 7)
        'L3H7'
    """
    return f"L{layer}H{head}"


def parse_head(name: str | tuple[int, int]) -> tuple[int, int]:
    """A head by name or pair, as a pair.

    Args:
        name: ``"L3H7"`` or ``(3, 7)``.

    Returns:
        Layer and head.

    Examples:
        >>> parse_head("L3H7")
        (3, 7)
    """
    if not isinstance(name, str):
        layer, head = name
        return int(layer), int(head)
    match = _HEAD_NAME.fullmatch(name.strip())
    if match is None:
        raise DataError(f"{name[:60]!r} is not the name of a head; write it as L3H7 (layer 3, head 7, counted from 0).")
    return int(match[1]), int(match[2])


def parse_heads(names: str | Iterable[str | tuple[int, int]]) -> list[tuple[int, int]]:
    """Several heads by name or pair, as pairs.

    Args:
        names: names or pairs, or one string of names.

    Returns:
        Layer and head of each, in the order given.

    Examples:
        >>> parse_heads("L3H7, L4H0")
        [(3, 7), (4, 0)]
        >>> parse_heads([(3, 7), "L4H0"])
        [(3, 7), (4, 0)]
    """
    if isinstance(names, str):
        names = [part for part in re.split(r"[,\s]+", names) if part]
    return [parse_head(name) for name in names]
