"""The control without a head, in words: what copying alone would score."""

from __future__ import annotations

import numpy as np
from synthetic.relations import relations_dataset

from headwise.studies.present import describe


def told(**copied: float) -> str:
    dataset = relations_dataset(8, 3)
    values = [copied.get(str(name).replace("-", "_"), 0.01) for name in dataset["relation"].values]
    dataset["copied_score"] = ("relation", np.array(values, dtype=np.float32))
    return next(line for line in describe("relations", dataset).observations if "nothing but copy" in line)


def test_relations_that_copying_passes_are_named_with_their_heads() -> None:
    said = told(copying=1.0, antonym=0.3)
    assert "would score over 0.15 for 2 of 7 relations (copying 1.00 and antonym 0.30)." in said
    dataset = relations_dataset(8, 3)
    over = dataset["score"].sel(relation=["copying", "antonym"]) > 0.15
    beyond = over & (dataset["score"].sel(relation=["copying", "antonym"]) > np.array([1.0, 0.3])[:, None, None])
    passing, more = (int(which.any("relation").sum()) for which in (over, beyond))
    assert passing and more
    assert f"{passing} heads do so for one of these, {more} by more than copying would." in said


def test_where_copying_passes_nothing_that_is_said() -> None:
    assert told() == "A head that did nothing but copy what it reads would score over 0.15 for none of 7 relations."


def test_an_atlas_without_the_control_says_nothing_of_it() -> None:
    assert "nothing but copy" not in describe("relations", relations_dataset(8, 3)).text()
