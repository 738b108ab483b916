"""Published scores of an answer: how likely is it wrong? Pure functions of readings, without torch and without a model.

    from headwise.scores import scores
    scores()["Semantic entropy"](readings)          # one number per answer, larger: more likely wrong

The study `uncertainty` makes the readings and compares all scores on the same answers and folds. In reading order:

- ``score``: what a score is, and how your own joins;
- ``token_probabilities``: of the answer's own tokens; ``attention``, ``hidden_states``: of one pass;
- ``self_judgement``: p(True);
- ``semantic_entropy``, ``agreement``, ``relevance``: of several sampled answers.
"""

from headwise.scores import (  # their scores are registered, in this order
    agreement,
    attention,
    hidden_states,
    relevance,
    self_judgement,
    semantic_entropy,
    token_probabilities,
)  # isort: skip
from headwise.scores.score import COSTS, Publication, UncertaintyScore, register, score, scores, scores_of

__all__ = [
    "COSTS", "Publication", "UncertaintyScore", "agreement", "attention", "hidden_states", "register", "relevance",
    "score", "scores", "scores_of", "self_judgement", "semantic_entropy", "token_probabilities",
]  # fmt: skip
