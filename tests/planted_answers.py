"""Answers whose truth is known by construction."""

import numpy as np


class Planted:
    """200 answers, 12 layers x 8 heads; in nine heads the value is larger where the answer is wrong."""

    HEADS = ((0, 3), (2, 1), (2, 2), (4, 7), (5, 0), (7, 4), (8, 4), (9, 6), (11, 5))

    def __init__(self, seed: int = 0, answers: int = 200, ranks: int = 0, shift: float = 1.0) -> None:
        random = np.random.default_rng(seed)
        self.labels = np.arange(answers) % 5 < 2  # 40 % wrong
        random.shuffle(self.labels)
        shape = (answers, 12, 8, ranks) if ranks else (answers, 12, 8)
        self.values = random.standard_normal(shape)
        for layer, head in self.HEADS:
            self.values[:, layer, head] += shift * self.labels.reshape(-1, *[1] * bool(ranks))
        if ranks:
            self.values = -np.sort(-self.values, axis=-1)
