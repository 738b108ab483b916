"""The shape of a functions study's Dataset: answers, the joint probe, importance of every head, and what speaks against it.

This file does not know how anything is measured.
"""

from __future__ import annotations

from headwise.atlas.schema import TEXT, Schema
from headwise.core.dims import EXAMPLE, FUNCTION, HEAD, LAYER, PREDICTED, RANK, SEED, WIDTH

__all__ = ["FUNCTIONS"]

_MAP = (FUNCTION, LAYER, HEAD)
_MAPS = (
    "importance",  # gradient x activation, mean over seeds; signed; NaN for a function that is refused
    "importance_low",  # ends of the 95 % interval of that mean, over seeds
    "importance_high",
    "importance_sd",  # spread over seeds
    "magnitude",  # |importance|: what is drawn and ranked
    "null_high",  # magnitude that 95 % of this head's maps with shuffled labels stay below
    "p",  # of the importance, against shuffled labels, two-sided
    "q",  # Benjamini-Hochberg over the heads of a function
    "alone",  # AUROC of this function against the others, from this head alone, cross-validated
    "alone_p",  # against shuffled labels
    "alone_q",
)
_FLAGS = (
    "beyond_null",  # q < 0.05
    "chosen",  # among the heads up to the elbow
)
_BY_FUNCTION = (
    "accuracy",  # share of steps that the model answers right, all splits; and its interval
    "accuracy_low",
    "accuracy_high",
    "recall",  # share of held-out steps of this function that the probe names right, mean over seeds
    "recall_low",
    "recall_high",
    "recall_chance",  # what guessing by the training shares would get
    "auroc",  # of this function against the others on held-out steps, logits' mean over seeds
    "auroc_low",
    "auroc_high",
    "agreement",  # mean rank correlation of the seeds' maps of magnitude, pair by pair
    "rank_correlation",  # Spearman, over heads, of `magnitude` with `alone`
    "rank_correlation_low",
    "rank_correlation_high",
    "confound_recall",  # as recall, auroc: a probe that sees only the answer's length and the kind of its first token
    "confound_auroc",
    "confound_auroc_low",
    "confound_auroc_high",
)
_NUMBERS = (
    "probe_accuracy",  # of the joint probe on held-out steps, mean over seeds; and its interval
    "probe_accuracy_low",
    "probe_accuracy_high",
    "majority",  # accuracy on held-out steps of always naming the function that is most frequent in training
    "permuted",  # mean accuracy on held-out steps of probes trained on shuffled labels
    "permuted_high",  # the highest of them
    "confound_accuracy",  # of the probe that sees only the answer's length and the kind of its first token
    "confound_accuracy_low",
    "confound_accuracy_high",
)
_ALONE = (
    "alone_accuracy",  # all functions told apart from this head alone, cross-validated; and its interval
    "alone_accuracy_low",
    "alone_accuracy_high",
)
_TEXTS = (
    "function_of",  # the step's label
    "split_of",  # "train" or "held-out"
    "chain",  # the question whose step it is
    "question",
    "subquestion",
    "answer",  # what the model said
    "gold",
    "rule",  # what decided right or wrong
    "key_text",  # the answer's key tokens, as the model's tokenizer has them, joined by " | "
)
_COUNTS = ("number", "answer_tokens", "key_tokens")  # place in its chain; tokens

FUNCTIONS = Schema(
    study="functions",
    version=1,
    variables=dict.fromkeys((*_MAPS, *_FLAGS), _MAP)
    | dict.fromkeys(_BY_FUNCTION, (FUNCTION,))
    | dict.fromkeys(_NUMBERS, ())
    | dict.fromkeys(_ALONE, (LAYER, HEAD))
    | dict.fromkeys((*_TEXTS, *_COUNTS, "right"), (EXAMPLE,))
    | {
        "importance_seeds": (SEED, *_MAP),
        "seed_accuracy": (SEED,),  # held-out accuracy of each seed's probe
        "confusion": (FUNCTION, PREDICTED),  # share of a function's held-out steps that the probe names so
        "sorted": (FUNCTION, RANK),  # magnitude, largest first
        "ranked": (FUNCTION, RANK),  # the names of these heads, L3H7
        "elbow": (FUNCTION,),  # how many heads there are up to the elbow; 0 where the map is refused
        "refused": (FUNCTION,),  # the probe does not tell this function from the others: no map
        "reason": (FUNCTION,),  # why, in a sentence; empty where the map stands
        "direction": (
            FUNCTION,
            LAYER,
            HEAD,
            WIDTH,
        ),  # deviation x unit(mean z of right - of wrong training answers); or NaN
        "train_right": (FUNCTION,),  # training steps that the directions were made from
        "train_wrong": (FUNCTION,),
        "best": (LAYER, HEAD),  # the function for which this head matters most, among those with q < 0.05; or empty
    },
    coords={
        FUNCTION: (FUNCTION,),
        "order": (FUNCTION,),  # "low", "high", or empty where it is not known
        "train": (FUNCTION,),  # steps
        "held_out": (FUNCTION,),
        PREDICTED: (PREDICTED,),
        EXAMPLE: (EXAMPLE,),
        SEED: (SEED,),
        RANK: (RANK,),
    },
    dtypes=dict.fromkeys((*_MAPS, *_BY_FUNCTION, *_NUMBERS, *_ALONE), "float32")
    | dict.fromkeys(("importance_seeds", "seed_accuracy", "confusion", "sorted", "direction"), "float32")
    | dict.fromkeys((*_FLAGS, "refused", "right"), "bool")
    | dict.fromkeys((*_COUNTS, "elbow", "train_right", "train_wrong", "train", "held_out", SEED, RANK), "int64")
    | dict.fromkeys((*_TEXTS, "ranked", "reason", "best", FUNCTION, "order", PREDICTED, EXAMPLE), TEXT),
    attrs=("record", "title", "key_rule", "shuffles", "epochs"),  # key_rule: in words, which tokens are the key tokens
)
