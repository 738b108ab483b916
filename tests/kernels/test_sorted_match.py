"""Every matching key of a query lies in the stretch of its block, and the stretches of a text are short."""

from itertools import product

import pytest
import torch

pytest.importorskip("triton")

from headwise.kernels.sorted_match import MAX_KEY_LISTS, MatchIds, sort_matches


def pairs_of(ids: MatchIds, offset: int) -> set[tuple[int, int, int, int]]:
    """(list, batch, query, key) of all matches, one by one."""
    return {
        (one, b, i, j)
        for one, keys in enumerate(ids.keys)
        for b, row in enumerate(ids.query.tolist())
        for i, query_id in enumerate(row)
        for j, key_id in enumerate(keys[b].tolist())
        if query_id >= 0 and query_id == key_id and j < i + offset
    }


def in_stretches(sets, offset, block):
    """The same pairs, found in the stretches alone."""
    order = sort_matches(sets, offset, block)
    found = [set() for _ in sets]
    for a, one in enumerate(sets):
        for key_list, b in product(range(MAX_KEY_LISTS), range(one.query.shape[0])):
            for slot, i in enumerate(order.queries[a, b].tolist()):
                for index in range(order.low[a, key_list, b, slot // block], order.high[a, key_list, b, slot // block]):
                    j = int(order.keys[a, key_list, b, index])
                    same = order.query_ids[a, b, slot] == order.key_ids[a, key_list, b, index]
                    if same and j < i + offset:
                        found[a].add((key_list, b, i, j))
    return found


@pytest.mark.parametrize(("queries", "keys"), [(40, 40), (9, 31), (1, 31), (31, 20)])
@pytest.mark.parametrize("ids", [1, 3, 30])
def test_all_matches_are_in_the_stretches(queries, keys, ids):
    generator = torch.Generator().manual_seed(ids)

    def random(length):
        return torch.randint(-1, ids, (2, length), generator=generator)

    sets = [MatchIds(random(queries), (random(keys), random(keys))) for _ in range(2)]
    sets.append(MatchIds(random(queries), (random(keys),)))
    sets.append(MatchIds(torch.full((2, queries), -1), (random(keys),)))
    offset = keys - queries
    assert in_stretches(sets, offset, 8) == [pairs_of(one, offset) for one in sets]


def test_stretches_are_short_where_ids_are_many():
    ids = torch.randint(0, 1000, (1, 2048), generator=torch.Generator().manual_seed(0))
    order = sort_matches([MatchIds(ids, (ids,))], 0, 64)
    assert int((order.high - order.low).max()) <= 64 + 2 * int(ids[0].bincount().max())


def test_causal_order_halves_the_stretches_of_one_id():
    ids = torch.zeros(1, 1024, dtype=torch.long)
    order = sort_matches([MatchIds(ids, (ids,))], 0, 64)
    assert order.high[0, 0, 0].tolist() == [64 * block + 63 for block in range(16)]
