"""The packaged pairs of words that are single tokens for several models: the same questions to all of them.

    python scripts/common_pairs.py MODEL MODEL ... --most 60 -o pairs.json
    headwise build MODEL --studies relations --relations pairs.json

Each tokenizer leaves other pairs of a relation, so maps of two models are made from different words. Here only those are
kept that every tokenizer has, at most so many a relation, drawn by a seed. MODEL is what `headwise.load` takes; "default"
is the default model. No weights are loaded.
"""

from __future__ import annotations

import argparse
import json
import random
from pathlib import Path

from headwise.corpora import packaged_relations
from headwise.corpora.relations import MIN_PAIRS, Relation, single_token_pairs
from headwise.model import open_stored


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="+")
    parser.add_argument("--most", type=int, default=60, help="pairs a relation")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("-o", "--output", type=Path, default=Path("pairs.json"))
    given = parser.parse_args()
    tokenizers = [open_stored(None if name == "default" else name).tokenizer for name in given.models]
    written = {}
    for relation in packaged_relations():
        pairs = common(relation, tokenizers)
        if len(pairs) >= MIN_PAIRS:
            written[relation.name] = fields(relation, draw(pairs, given.most, given.seed))
        print(f"{relation.name}: {len(pairs)} of {len(relation)} pairs in common")
    given.output.write_text(json.dumps(written, ensure_ascii=False, indent=1), encoding="utf-8")


def common(relation: Relation, tokenizers: list) -> list[tuple[str, str]]:
    """The pairs that every tokenizer leaves, in the order of their words."""
    return sorted(set.intersection(*(set(single_token_pairs(relation, one).pairs) for one in tokenizers)))


def draw(pairs: list[tuple[str, str]], most: int, seed: int) -> list[tuple[str, str]]:
    """At most so many; lists of the same length are drawn from alike, so that relations of the same words share sources."""
    return sorted(random.Random(seed).sample(pairs, min(most, len(pairs))))


def fields(relation: Relation, pairs: list[tuple[str, str]]) -> dict:
    return {
        "category": relation.category,
        "copying": relation.copying,
        "source": relation.source,
        "templates": list(relation.templates),
        "pairs": pairs,
    }


if __name__ == "__main__":
    main()
