"""What fills the slots of a link: people, things, colours, cities and small numbers, drawn for every link."""

from __future__ import annotations

import random
from collections.abc import Sequence

MEN = (
    "John Robert Michael David Thomas Charles Daniel Paul Andrew Kevin George Edward Jason Eric Frank Jack Henry Adam "
    "Peter Sam Tom Ben Max Leo Martin Oscar Simon Philip Alan Luke Jacob"
).split()
WOMEN = (
    "Mary Linda Susan Sarah Karen Nancy Lisa Emily Laura Amy Anna Emma Rachel Maria Julie Olivia Hannah Martha Alice "
    "Julia Diana Lucy Claire Clara Ella Eva Jane Kate Helen Ruth"
).split()
DRAWN = {  # slots, and what they are drawn from without repetition
    ("colour", "colour2"): "red blue green yellow black white brown grey".split(),
    ("xs", "ys"): "apples books cups pens hats coins chairs keys boats cakes balls shoes eggs dolls kites bags".split(),
    ("city", "city2"): "Paris London Rome Berlin Madrid Tokyo Moscow Vienna Boston Chicago".split(),
    ("pet", "pet2"): "dog cat pony horse rabbit goat".split(),
    ("sport", "sport2"): "football tennis chess hockey swimming golf baseball".split(),
    ("spot", "spot2"): "box bag drawer basket kitchen garden car bed".split(),
    ("place", "place2"): "school farm lake market station church library beach".split(),
    ("subject", "subject2"): "music history maths art biology physics".split(),
    ("tool",): "piano guitar violin flute drum trumpet".split(),
}


def drawn(rng: random.Random, taken: Sequence[str]) -> dict[str, object]:
    """The slots of one link; none of the people is among those taken."""
    woman, other_woman = rng.sample([name for name in WOMEN if name not in taken], 2)
    man, other_man = rng.sample([name for name in MEN if name not in taken], 2)
    a, b, c = rng.sample([woman, other_woman, man, other_man], 3)
    m, n = rng.sample(range(2, 10), 2)
    slots: dict[str, object] = {"a": a, "b": b, "c": c, "w": woman, "v": man, "m": m, "n": n}
    slots |= {"m1": m + 1, "n1": n + 1, "n_less": n - 1, "hi": max(m, n), "lo": min(m, n)}
    slots |= {"gap": abs(m - n), "double": 2 * m}
    for names, words in DRAWN.items():
        slots |= dict(zip(names, rng.sample(words, len(names)), strict=True))
    first = m > n
    slots |= {"who_more": a if first else b, "dearer": slots["colour" if first else "colour2"]}
    slots |= {"many": slots["xs" if first else "ys"]}
    slots["Subject"] = str(slots["subject"]).capitalize()
    return slots


def with_row(slots: dict[str, object], row: Sequence[str]) -> dict[str, object]:
    """The slots with those of a row of a table; of a number also what is reckoned from it."""
    own = dict(slots) | dict(zip("pqrs", row, strict=False))
    article, of_kind = ("an" if word[0] in "aeiou" else "a" for word in row[:2])
    own |= {"ap": f"{article} {row[0]}", "Ap": f"{article.capitalize()} {row[0]}", "aq0": of_kind}
    if len(row) > 1 and row[1].isdigit():
        number = int(row[1])
        own |= {"q1": number + 1, "q2": number + 2, "q_less": number - 1}
    return own
