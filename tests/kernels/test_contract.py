"""Requests: what `a | b` asks for."""

import pytest
import torch
from layers import Setting, attention_of, everything

from headwise.kernels import Match, ReductionRequest, Reductions, contract, reduce


def test_two_requests_in_one():
    marks = torch.ones(2, 5)
    a = ReductionRequest(column_sums=True, top=3, offsets=frozenset([(0, 1)]), key_weights={"a": marks})
    b = ReductionRequest(
        entropy=True,
        top=5,
        offsets=frozenset([(1, 2)]),
        count_above=frozenset([0.5]),
        key_weights={"a": marks, "b": marks},
    )
    both = a | b
    assert both.column_sums
    assert both.entropy
    assert not both.row_max
    assert both.top == 5
    assert both.offsets == {(0, 1), (1, 2)}
    assert both.count_above == {0.5}
    assert set(both.key_weights) == {"a", "b"}
    assert both.key_weights["a"] is marks
    assert not a.entropy  # neither was changed
    assert set(a.key_weights) == {"a"}


def test_asking_for_nothing():
    assert not ReductionRequest()
    assert not (ReductionRequest() | ReductionRequest())
    assert ReductionRequest(row_max=True) | ReductionRequest()
    assert ReductionRequest(top=1)
    assert ReductionRequest(count_above=frozenset([0.1]))
    assert ReductionRequest(query_weights={"a": torch.ones(1, 2)})
    assert reduce(attention_of(Setting()), ReductionRequest()).flat() == {}


@pytest.mark.parametrize("kind", ["key_weights", "query_weights"])
def test_two_things_under_one_name_are_refused(kind):
    a, b = (
        ReductionRequest(**{kind: {"same": torch.ones(1, 2)}}),
        ReductionRequest(**{kind: {"same": torch.ones(1, 2)}}),
    )
    with pytest.raises(ValueError, match=f"two instruments ask for different {kind} under the name 'same'"):
        a | b


def test_both_requests_get_what_each_alone_gets():
    attention = attention_of(Setting())
    whole = everything(attention)
    part, rest = (
        ReductionRequest(entropy=True, top=2),
        ReductionRequest(column_sums=True, token_matches=whole.token_matches),
    )
    together = reduce(attention, part | rest).flat()
    for alone in (reduce(attention, part).flat(), reduce(attention, rest).flat()):
        for name, value in alone.items():
            torch.testing.assert_close(together[name], value, rtol=1e-6, atol=1e-7, equal_nan=True)


def test_matches_are_earlier_keys_with_the_same_id_in_order_of_query():
    ids = torch.tensor([[4, 5, 4, 4], [-1, 5, -1, 5]])
    batch, query, key = Match(ids, ids).indices(0)
    assert list(zip(batch.tolist(), query.tolist(), key.tolist(), strict=True)) == [
        (0, 2, 0), (0, 3, 0), (0, 3, 2), (1, 3, 1),
    ]  # fmt: skip


def test_matches_of_many_queries_are_found_by_stretches(monkeypatch):
    ids = torch.randint(0, 5, (2, 30), generator=torch.Generator().manual_seed(0))
    whole = Match(ids[:, 10:], ids).indices(20)
    monkeypatch.setattr(contract, "STRETCH", 7)
    parts = Match(ids[:, 10:], ids).indices(20)
    for found, expected in zip(parts, whole, strict=True):
        assert torch.equal(found, expected)


def test_flat_names():
    found = Reductions(row_max=torch.zeros(1), count_above={0.5: torch.zeros(1)}, key_weights={"a": torch.zeros(1)})
    assert set(found.flat()) == {"row_max", "count_above[0.5]", "key_weights[a]"}
