"""Published scores of an answer: how likely is it wrong? Pure functions of readings, without torch and without a model.

    from headwise.scores import scores
    scores()["Semantic entropy"](readings)          # one number per answer, larger: more likely wrong

``score`` says what a score is and how your own joins. The study `uncertainty` makes the readings and compares all scores on the
same answers and folds.
"""

from headwise.scores.score import COSTS, UncertaintyScore, known_scores, register, score, scores

__all__ = ["COSTS", "UncertaintyScore", "known_scores", "register", "score", "scores"]
