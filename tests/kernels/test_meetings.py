"""Every key that a query asks for lies in the stretch its block is shown, and the stretches of a text are short."""

from itertools import product

import pytest
import torch

from headwise.kernels.meetings import SIDES, Asking, meetings


def pairs_of(asking: Asking, offset: int) -> set[tuple[int, int, int, int]]:
    """(side, batch, query, key) of all that is asked for, one by one."""
    return {
        (side, b, i, j)
        for side, keys in enumerate(asking.keys)
        for b, row in enumerate(asking.query.tolist())
        for i, wanted in enumerate(row)
        for j, named in enumerate(keys[b].tolist())
        if wanted >= 0 and wanted == named and j < i + offset
    }


def shown(askings, offset, block):
    """The same pairs, found in the stretches alone."""
    sorts = meetings(askings, offset, block)
    found = [set() for _ in askings]
    for a, one in enumerate(askings):
        for side, b in product(range(SIDES), range(one.query.shape[0])):
            for slot, i in enumerate(sorts.queries[a, b].tolist()):
                for place in range(sorts.low[a, side, b, slot // block], sorts.high[a, side, b, slot // block]):
                    j = int(sorts.keys[a, side, b, place])
                    same = sorts.query_ids[a, b, slot] == sorts.key_ids[a, side, b, place]
                    if same and j < i + offset:
                        found[a].add((side, b, i, j))
    return found


@pytest.mark.parametrize(("queries", "keys"), [(40, 40), (9, 31), (1, 31), (31, 20)])
@pytest.mark.parametrize("ids", [1, 3, 30])
def test_all_that_is_asked_for_is_shown(queries, keys, ids):
    generator = torch.Generator().manual_seed(ids)

    def random(length):
        return torch.randint(-1, ids, (2, length), generator=generator)

    askings = [Asking(random(queries), (random(keys), random(keys))) for _ in range(2)]
    askings.append(Asking(random(queries), (random(keys),)))
    askings.append(Asking(torch.full((2, queries), -1), (random(keys),)))
    offset = keys - queries
    assert shown(askings, offset, 8) == [pairs_of(one, offset) for one in askings]


def test_stretches_are_short_where_ids_are_many():
    ids = torch.randint(0, 1000, (1, 2048), generator=torch.Generator().manual_seed(0))
    sorts = meetings([Asking(ids, (ids,))], 0, 64)
    assert int((sorts.high - sorts.low).max()) <= 64 + 2 * int(ids[0].bincount().max())


def test_causal_order_halves_the_stretches_of_one_id():
    ids = torch.zeros(1, 1024, dtype=torch.long)
    sorts = meetings([Asking(ids, (ids,))], 0, 64)
    assert sorts.high[0, 0, 0].tolist() == [64 * block + 63 for block in range(16)]
