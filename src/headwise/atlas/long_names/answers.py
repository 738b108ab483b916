"""What the variables are of the studies of attention on texts, and of right and wrong answers.

This file does not know how anything is measured.
"""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["ANSWERS", "DETECTION", "PATTERNS", "PROBING", "PROFILE", "SAMPLES", "SPECTRAL"]

_UNIFORM = "what a head that spreads its attention evenly over all it can see would get"

PROFILE: Mapping[str, str] = {
    "value": "the statistic of the head, mean over examples; its unit is in the coordinate unit",
    "low": "lower end of the 95 % interval of that mean",
    "high": "upper end of the 95 % interval of that mean",
    "uniform": f"{_UNIFORM}; NaN where that makes no sense",
    "per_example": "the statistic of the head in one example",
    "unit": "unit of the statistic",
}

_ALIKE = {
    "similarity": "1 - Jensen-Shannon divergence (bits) of the two subjects' attention rows: 1 the same, 0 disjoint",
    "other": "control: the same with the next head of the layer in the second subject",
    "elsewhere": "similarity with the weight on the first token counted as looking nowhere",
    "dropped": "share of the first subject's active edges that the second does not have",
    "gained": "share of the second subject's active edges that the first does not have",
    "kl": "divergence of the next-token distributions of the two subjects [nats]",
}

PATTERNS: Mapping[str, str] = {
    "value": "the statistic of the head's attention map, mean over prompts",
    "low": "lower end of the 95 % interval of that mean",
    "high": "upper end of the 95 % interval of that mean",
    "uniform": _UNIFORM,
    "per_example": "the statistic of the head's attention map in one prompt",
    "peaked": "share of the prompts in which the head has an off-diagonal peak",
    "loss": "mean next-token loss of the prompt [nats]",
    "whole": "the feature over all heads together, mean over prompts",
    "average": "attention map pooled and averaged over prompts; NaN where the mask hides it",
    "shown": "attention map of the shown prompt",
    "name": "name of the subject",
    "feature_definition": "definition of the feature in words",
    "token_text": "text of each token of the shown prompt",
    "change": "the statistic in the second subject less that in the first, mean over prompts",
    "p": "p-value of the change, paired over prompts",
    "q": "q-value of the change (Benjamini-Hochberg)",
    "whole_change": "the feature in the second subject less that in the first, mean over prompts",
    "whole_p": "p-value of that change, paired over prompts",
    **_ALIKE,
    **{f"whole_{name}": f"over all heads: {text}" for name, text in _ALIKE.items()},
    **{f"{name}_of_prompt": f"over all heads, in one prompt: {text}" for name, text in _ALIKE.items()},
}

ANSWERS: Mapping[str, str] = {
    "question": "question asked",
    "answer": "what the model said",
    "gold": "right answer to show",
    "golds": "all answers that count as right, a JSON list",
    "label": "correct, wrong or refused",
    "rule": "what decided the label",
    "matched": "right answer that the rule found",
    "topic": "topic of the question",
    "prompt_ids": "token ids of the prompt, decimal, separated by blanks",
    "answer_ids": "token ids of the answer, decimal, separated by blanks",
    "difficulty": "difficulty of the question",
    "prompt_tokens": "length of the prompt [tokens]",
    "answer_tokens": "length of the answer [tokens]",
    "finished": "whether the answer ended by itself rather than being cut",
    "logprob_mean": "mean log-probability of the answer's tokens [nats]",
    "logprob_min": "smallest log-probability of the answer's tokens [nats]",
}

_TEST = "of the feature, wrong against correct answers"

SPECTRAL: Mapping[str, str] = {
    "p": f"p-value (two-sided Mann-Whitney U) {_TEST}",
    "q": f"q-value (Benjamini-Hochberg over the map) {_TEST}",
    "effect": "AUROC of the single feature: over 0.5 it is larger in wrong answers",
    "p_matched": "p-value with wrong and correct answers paired by length",
    "q_matched": "q-value with wrong and correct answers paired by length",
    "p_cauchy": "p-value of the ten tests of one rank each, combined by Cauchy's rule",
    "p_min": "p-value of the ten tests of one rank each: the smallest, corrected",
    "share": "share of heads with p < 0.05",
    "share_matched": "share of heads with p < 0.05, answers paired by length",
    "null_mean": "share of heads with p < 0.05 with shuffled labels, mean",
    "null_high": "share of heads with p < 0.05 that 95 % of shuffles of the labels stay below",
    "null_p": "share of shuffles of the labels with a share of heads as large",
    "per_example": "the feature of the head in one answer",
    "wrong": "whether the answer is wrong",
    "answer_tokens": "length of the answer [tokens]",
    "topic": "topic of the question",
}

DETECTION: Mapping[str, str] = {
    "auroc": "AUROC of wrong against correct answers, mean over folds",
    "pooled": "AUROC over the out-of-fold scores of all answers at once",
    "fold_auroc": "AUROC on each fold",
    "score": "out-of-fold score of the answer, larger is more likely wrong",
    "probability": "out-of-fold probability that the answer is wrong",
    "precision": "precision of calling an answer wrong, out of fold",
    "recall": "recall of wrong answers, out of fold",
    "brier": "Brier score of the probabilities, out of fold",
    "gain": "AUROC less that of the reference detector, paired",
    "by_k": "AUROC with so many eigenvalues used, fixed beforehand",
    "by_layer": "AUROC from one layer alone",
    "by_size": "AUROC when fitted on so many answers",
    "transfer": "AUROC on a topic when fitted on one topic, or on all others",
    "choice": "what is chosen inside the training folds: k, layer, or nothing",
    "chosen": "what was chosen in each fold",
    "paper": "AUROC by the published protocol, which chooses on the test set and is optimistic",
    "paper_choice": "what the published protocol chose",
    "kind": "kind of detector: supervised, combined or score",
    "wrong": "whether the answer is wrong",
    "fold_of": "fold of the answer",
}

PROBING: Mapping[str, str] = {
    "auroc": "AUROC of a probe at this site, layer and token, wrong against correct answers, cross-validated",
    "low": "lower end of the 95 % interval of auroc",
    "high": "upper end of the 95 % interval of auroc",
    "p": "p-value of auroc against shuffled labels",
    "q": "q-value of auroc (Benjamini-Hochberg)",
    "null_high": "AUROC that 95 % of probes with shuffled labels stay below",
    "chosen": "number of folds in which this cell was chosen",
    "best_high": "AUROC that the best cells of 95 % of maps with shuffled labels stay below",
    "best_p": "share of maps with shuffled labels whose best cell is as good as this map's",
    "nested": "AUROC of the best cell, chosen on other folds than it is judged on",
    "frame_first": "first of the framed layers; -1: none",
    "frame_last": "last of the framed layers; -1: none",
    "head_auroc": "AUROC of a probe on this head's output, wrong against correct answers, cross-validated",
    "head_low": "lower end of the 95 % interval of head_auroc",
    "head_high": "upper end of the 95 % interval of head_auroc",
    "head_p": "p-value of head_auroc against shuffled labels",
    "head_q": "q-value of head_auroc (Benjamini-Hochberg over heads)",
    "head_null_high": "AUROC that 95 % of this head's probes with shuffled labels stay below",
    "head_best_high": "AUROC that the best heads of 95 % of maps with shuffled labels stay below",
    "head_best_p": "share of maps with shuffled labels whose best head is as good as this map's",
    "published": "AUROC of the first site with published spans; NaN at tokens without a span",
    "paper": "AUROC by the published protocol: one 80/20 split, published spans",
    "received": "attention from later tokens, mean over heads and examples",
    "in_prompt": "number of examples in which this token stands in the prompt",
    "moved": "number of examples in which there is no such token and the nearest end was taken",
    "exact": "text of the exact answer",
    "exact_first": "place of the exact answer's first token",
    "exact_last": "place of the exact answer's last token",
    "answer_tokens": "length of the answer [tokens]",
    "topic_of": "topic of the question",
    "p_true": "probability that the model gives to its answer being true",
    "table_auroc": "AUROC of the detector beside the probes",
    "table_low": "lower end of the 95 % interval of table_auroc",
    "table_high": "upper end of the 95 % interval of table_auroc",
    "transfer": "AUROC on a group of topics of the probe fitted on another",
    "transfer_gain": "transfer less the AUROC of the log-probability on the tested group",
    "transfer_logprob": "AUROC of the log-probability on the tested group",
    "transfer_size": "answers of the group [answers]",
    "group": "group of topics of the question",
    "kind": "kind of detector",
    "wrong": "whether the answer is wrong",
    "fold_of": "fold of the answer",
}

_CHOSEN = {
    "accuracy": "share of questions where the chosen sample is correct",
    "gain": "accuracy less that of the greedy answer",
}

SAMPLES: Mapping[str, str] = {
    "answer": "sampled answer",
    "label": "correct, wrong or refused",
    "exact": "exact answer in the sample",
    "group": "number that equal answers to a question share",
    "answer_tokens": "length of the sample [tokens]",
    "logprob_mean": "mean log-probability of the sample's tokens [nats]",
    "score": "log-odds of wrong, from a probe that saw no sample of this question",
    "question": "question asked",
    "topic": "topic of the question",
    "fold_of": "fold of the question",
    "greedy_correct": "whether the greedy answer is correct",
    "correct": "number of correct samples [samples]",
    "largest_wrong": "number of samples that share the most frequent wrong answer [samples]",
    "wrong_answers": "number of different wrong answers",
    "refused": "number of samples that refuse [samples]",
    "is_type": "whether the question is of this type of error",
    "picked": "how often the strategy's choice is correct",
    **_CHOSEN,
    **{f"type_{name}": f"{text}, on questions of this type" for name, text in _CHOSEN.items()},
    "type_auroc": "AUROC of a probe for this type of error; NaN where too few questions are of it",
    "type_low": "lower end of the 95 % interval of type_auroc",
    "type_high": "upper end of the 95 % interval of type_auroc",
    "type_null_high": "AUROC that 95 % of such probes with shuffled labels stay below",
    "probe_auroc": "AUROC, over samples, of the probe that chooses",
    "type_name": "name of the type of error",
}
