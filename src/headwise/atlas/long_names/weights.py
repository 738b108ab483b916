"""What the variables are of the studies of a head's weights: relations, salience, and whether texts bear the scores out.

This file does not know how anything is measured.
"""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["RELATIONS", "RELATION_VALIDATION", "SALIENCE"]

_SIGNS = {
    "score": ("score", "promoted, among the k largest entries"),
    "suppression": ("suppression", "suppressed, among the k smallest entries"),
}

_PAIRS: Mapping[str, str] = {
    f"{sign}{part}": phrase.format(name=name, where=where)
    for sign, (name, where) in _SIGNS.items()
    for part, phrase in {
        "": "share of the relation's pairs whose target is {where} of what the head's weights make of the source",
        "_null": "mean {name} with shuffled targets",
        "_null_high": "largest {name} of all shuffles of the targets",
        "_null_over": "share of shuffles of the targets whose {name} is over the threshold",
        "_false_positive": "share of shuffles of the targets whose {name} is over the threshold, mean over all heads",
    }.items()
}

RELATIONS: Mapping[str, str] = {
    **_PAIRS,
    "copied_score": "score of a head that would do nothing but copy what it reads",
    "copied_suppression": "suppression of a head that would do nothing but copy what it reads",
    "member": "whether the head promotes a relation of the category over the threshold: promotion only; categories, words and "
    "figures count member or member_suppression",
    "member_suppression": "whether the head suppresses a relation of the category over the threshold: suppression only",
    "member_beyond_null": "whether the head promotes or suppresses a relation of the category over the threshold and over each "
    "of its own shuffles: both signs, the stricter rule",
    "pairs": "pairs of the relation that the tokenizer left [pairs]",
    "given": "pairs of the relation before the tokenizer left some out [pairs]",
    "k": "number of largest (or smallest) entries among which a target counts as found [tokens]",
    "mapped": "whether the head promotes the target of this pair among the k largest entries",
    "suppressed": "whether the head suppresses the target of this pair among the k smallest entries",
    "categories": "categories of the head by its weights: those where member or member_suppression holds; empty if none",
    "best": "relation of the head's best score by either sign; empty where that is not over the threshold",
    "best_score": "the head's best score, by either sign",
    "category_of": "category of the relation",
    "source": "source word of the pair",
    "target_word": "target word of the pair",
    "relation_of": "relation of the pair",
}

SALIENCE: Mapping[str, str] = {
    "strength": "norm of what the head writes for the token over norm of what it reads",
    "token": "id of the token that the head acts on at this rank; -1 where there is no such head",
    "targets": "ids of the tokens that the head maps this token to, strongest first",
    "tokens": "the first few of these tokens in words",
    "text": "text of the token id",
}

RELATION_VALIDATION: Mapping[str, str] = {
    "score": "score of the head from its weights alone",
    "natural": "share of prompts in which the head's output, with the attention as it is, promotes the target",
    "forced": "share of prompts in which the head's output, with all attention forced onto the source, promotes the target",
    "pearson_natural": "correlation over heads of the score from weights with the share found with the attention as it is",
    "pearson_forced": "correlation over heads of the score from weights with the share found with attention forced onto "
    "the source",
    "other_natural": "control: as pearson_natural, with the scores of the other relations",
    "other_forced": "control: as pearson_forced, with the scores of the other relations",
    "own": "accuracy with the relation's highest-scored heads switched off",
    "random": "accuracy with as many random heads switched off, mean over draws",
    "random_draws": "accuracy with random heads switched off, each draw",
    "others": "accuracy on another task's prompts with this task's heads switched off",
    "effect": "accuracy lost beyond random heads, mean over all numbers of heads",
    "spill": "accuracy that the other tasks lose beyond random heads, mean over all numbers of heads",
    "category_of": "category of the relation",
    "prompts": "prompts of the relation [prompts]",
    "tried": "prompts of the task [prompts]",
    "right": "of these, completed right by the whole model [prompts]",
    "asked": "of these, asked again without heads [prompts]",
}
