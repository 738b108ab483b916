"""How was each study measured? A short paragraph a study for its page, with the source it follows.

Written for a reader who has not read the source. What is said here holds for every atlas; what holds for one atlas (sizes,
seeds, thresholds) stands in the words and the provenance, which are computed.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["METHODS", "Method"]

_ANSWERS = "The model answers each question greedily; a stated matching rule labels the answer correct or wrong. "


@dataclass(frozen=True)
class Method:
    """A paragraph, and where the method comes from (empty where it is ours alone)."""

    text: str
    source: str = ""
    link: str = ""


METHODS = {
    "profile": Method(
        "While the model reads the passages, statistics of every head's attention weights are summed up inside the layer "
        "call, block by block, and the weights are thrown away. Induction and duplicate-token scores come from sequences of "
        "random tokens that repeat. Beside each value stands what a head would get that spreads its attention evenly over "
        "the same keys; intervals are over texts."
    ),
    "patterns": Method(
        "Every head's attention map of one prompt as a small picture; what the mask hides is a texture, not nought. Maps "
        "larger than their tile keep the largest weight of each rectangle. The numbers are means over many prompts; where two "
        "models are compared they read the same tokens, and each change has a paired test over prompts.",
        "Draye, Lei et al., Sparse Attention Post-Training for Mechanistic Interpretability",
        "https://arxiv.org/abs/2512.05865",
    ),
    "sparsity": Method(
        "Attention weights are dropped at inference by several rules (the largest of a row, those over a threshold, a "
        "window, entmax), and as a control at random; what it costs is the rise of the loss against the same text read "
        "whole. Each head is also cut alone, with everything before it untouched."
    ),
    "circuits": Method(
        "Clean and corrupted prompts of a task differ in one fact. Heads and edges between them are ranked by a first-order "
        "estimate of what swapping them does to the answer; circuits of the highest ranked are then run for real, with all "
        "else corrupted, beside random circuits of the same size.",
        "Draye, Lei et al., Sparse Attention Post-Training for Mechanistic Interpretability",
        "https://arxiv.org/abs/2512.05865",
    ),
    "answers": Method(
        f"{_ANSWERS}Refusals and answers that were cut off are kept apart. All studies of right and wrong answers start "
        "from this table."
    ),
    "spectral": Method(
        f"{_ANSWERS}A head's attention map, read as a graph, has a Laplacian whose eigenvalues are the attention each token "
        "receives (mean over those who can see it) less what it keeps on itself. Features of wrong and correct answers are "
        "compared head by head with a two-sided Mann-Whitney U test; q-values are Benjamini-Hochberg over the heads of one "
        "map, and the same tests on shuffled labels say what chance would give. Only column sums and the diagonal are "
        "ever needed, so no map is stored.",
        "Binkowski et al., Hallucination Detection in LLMs Using Spectral Features of Attention Maps",
        "https://arxiv.org/abs/2502.17598",
    ),
    "detection": Method(
        "Detectors of wrong answers are fitted on the features of all heads together (principal components, then logistic "
        "regression) and judged on folds they have not seen; what has to be chosen is chosen inside the training folds. "
        "Log-probabilities and the mere length of the answer stand in the same table.",
        "Binkowski et al., Hallucination Detection in LLMs Using Spectral Features of Attention Maps",
        "https://arxiv.org/abs/2502.17598",
    ),
    "probing": Method(
        f"{_ANSWERS}At every layer and at fifteen tokens around the question's end and the exact answer, a logistic "
        "regression on the activation predicts that the answer is wrong; each cell is its AUROC on folds held out. The exact "
        "answer is found by the same rule whatever the label. The best cell is judged on folds that did not choose it.",
        "Orgad et al., LLMs Know More Than They Show",
        "https://arxiv.org/abs/2410.02707",
    ),
    "samples": Method(
        "Each question is answered many times by sampling. From how often the answers are right, and how the wrong ones "
        "agree, come types of error; strategies choose one of the samples, among them a probe of the model's own activations.",
        "Orgad et al., LLMs Know More Than They Show",
        "https://arxiv.org/abs/2410.02707",
    ),
    "relations": Method(
        "No text is read. A head's weights map every token to the tokens it would write if it looked there: embedding, value "
        "and output matrices, unembedding. A head's score for a relation is the share of its word pairs whose target is among "
        "the strongest few; suppression is the same with the sign turned. Scores have Wilson intervals, and shuffled targets "
        "say how often chance passes the threshold.",
        "Elhelo and Geva, Inferring Functionality of Attention Heads from their Parameters",
        "https://arxiv.org/abs/2412.11965",
    ),
    "relation_validation": Method(
        "Two tests of the scores from weights. In prompts that contain a relation's source word, does the head really write "
        "the target, with its attention as it is and with all of it on the source? And when a relation's heads are switched "
        "off, does the model lose that task, more than with as many random heads, and more than other tasks?",
        "Elhelo and Geva, Inferring Functionality of Attention Heads from their Parameters",
        "https://arxiv.org/abs/2412.11965",
    ),
    "functions": Method(
        "Questions are split into steps, each labelled with the cognitive function it asks for. One probe over the outputs of "
        "all heads together names the function of a step; a head's importance is gradient times activation of that "
        "function's logit, on held-out steps, averaged over seeds. A function the probe cannot tell has no map. A simpler "
        "probe on each head alone is the second opinion.",
        "Ma et al., Cognitive Mirrors",
        "https://arxiv.org/abs/2512.10978",
    ),
    "function_masking": Method(
        "The most important heads of a function are scaled to nearly nothing while the model answers steps it can do; as "
        "many random heads outside the set are the control, drawn several times. Steps of the other functions show whether "
        "the loss is that function's own.",
        "Ma et al., Cognitive Mirrors",
        "https://arxiv.org/abs/2512.10978",
    ),
}
