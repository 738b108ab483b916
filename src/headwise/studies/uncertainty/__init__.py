"""Every published white-box score of a wrong answer, on the same answers and folds, in one table."""
