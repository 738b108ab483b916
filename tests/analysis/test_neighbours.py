"""Near heads: planted twins are found, and heads of a record of noise are not called alike."""

import numpy as np
from synthetic.given import scores

from headwise.analysis.columns import Column, Columns, columns_of
from headwise.analysis.neighbours import Neighbourhood

LAYERS, HEADS = 20, 8


def record(twins: bool = True, studies: int = 4, columns: int = 6, seed: int = 0) -> Columns:
    """Noise; with ``twins`` L3H1 and L15H6 have the same values in every study, but for a little."""
    rng = np.random.default_rng(seed)
    made = []
    for study in range(studies):
        for place in range(columns if study else 1):
            values = rng.normal(size=(LAYERS, HEADS))
            if twins:
                values[3, 1] = 2.5 - place
                values[15, 6] = values[3, 1] + 0.01
            made.append(Column(f"s{study}.c{place}", f"s{study}", f"c{place}", values))
    return Columns(LAYERS, HEADS, tuple(made))


def plain_distance(table: Columns, one: int, other: int) -> float:
    ranks = [column.values.ravel().argsort().argsort() / (column.values.size - 1) for column in table.columns]
    squares: dict[str, list[float]] = {}
    for column, rank in zip(table.columns, ranks, strict=True):
        squares.setdefault(column.study, []).append((rank[one] - rank[other]) ** 2)
    return float(np.sqrt(np.mean([np.mean(each) for each in squares.values()])))


def test_distances_are_the_plain_ones():
    table = record()
    near = Neighbourhood(table).of("L7H2", n=200)
    row = table.names.index("L7H2")
    for one in near[::37]:
        np.testing.assert_allclose(one.distance, plain_distance(table, row, table.names.index(one.name)), atol=1e-9)
    assert len(near) == LAYERS * HEADS - 1
    assert [one.distance for one in near] == sorted(one.distance for one in near)


def test_planted_twins_find_each_other_and_chance_does_not_explain_it():
    neighbourhood = Neighbourhood(record())
    for one, other in (("L3H1", "L15H6"), ("L15H6", "L3H1")):
        nearest = neighbourhood.of(one)[0]
        assert nearest.name == other
        assert nearest.closer_than > 0.999 and nearest.by_chance < 0.01
        assert "s0.c0" in nearest.shares and not nearest.differs


def test_in_noise_the_nearest_is_no_closer_than_by_chance():
    neighbourhood = Neighbourhood(record(twins=False))
    share = np.mean([neighbourhood.of(name, 1)[0].by_chance < 0.05 for name in neighbourhood.names])
    assert share < 0.12


def test_unrelated_heads_are_sqrt_a_sixth_apart():
    assert abs(np.sqrt(np.mean(Neighbourhood(record(twins=False)).spread ** 2)) - np.sqrt(1 / 6)) < 0.01


def test_a_study_of_many_columns_counts_once():
    rng = np.random.default_rng(1)
    few = [Column(f"few.{c}", "few", "", rng.normal(size=(LAYERS, HEADS))) for c in range(1)]
    many = [Column(f"many.{c}", "many", "", rng.normal(size=(LAYERS, HEADS))) for c in range(30)]
    few[0].values[0, 0], few[0].values[0, 1] = 5, 5.001  # equal in the small study, strangers in the large one
    distance = {one.name: one.distance for one in Neighbourhood(Columns(LAYERS, HEADS, (*few, *many))).of("L0H0", 200)}
    assert abs(distance["L0H1"] - np.sqrt(1 / 12)) < 0.05


def test_heads_that_were_not_measured():
    values = np.arange(12.0).reshape(4, 3)
    gap = values.copy()
    gap[0] = np.nan
    found = columns_of({"a": scores(values, "a"), "b": scores(gap, "b")})
    neighbourhood = Neighbourhood(found)
    assert {one.studies for one in neighbourhood.of("L0H0", 20)} == {1}
    nothing = np.full((4, 3), np.nan)
    nothing[1:] = values[1:]
    assert Neighbourhood(columns_of({"a": scores(nothing, "a"), "b": scores(nothing, "b")})).of("L0H0") == ()


def test_one_study_has_no_chance_to_be_shuffled_against():
    neighbourhood = Neighbourhood(columns_of({"a": scores(np.arange(12.0).reshape(4, 3), "a")}))
    assert np.isnan(neighbourhood.of("L0H0")[0].by_chance)
