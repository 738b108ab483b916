"""Relations between words, such as country -> capital: the packaged ones, and a user's own.

A relation is a list of pairs (source, target). What a head does to a source word can be read off its weights or its
output, and compared with the target; so both words must be one token in the tokenizer at hand (see `single_tokens`).
The packaged relations are ours, in four categories; every one says where its facts come from (made by
scripts/make_relations.py). A source may have several targets (Canada: English, French); each is a pair of its own.

A user's file is JSON, CSV or TSV; a folder is all such files in it:

    [["hot", "cold"], ["big", "small"]]                                  pairs; the file's name is the relation's
    {"antonym": [["hot", "cold"], ...], "plural": [...]}                 several relations
    {"antonym": {"pairs": [...], "category": "linguistic", "copying": false, "source": "...", "templates": [...]}}
    source,target[,relation][,category]                                  first line of a CSV or TSV file

This module runs no model, and knows no tokenizer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from headwise.core.errors import DataError, did_you_mean
from headwise.corpora.digest import digest_of
from headwise.corpora.relation_files import SUFFIXES, fields_of, fields_of_json

__all__ = ["CATEGORIES", "SLOT", "Relation", "Relations", "packaged_relations", "read_relations"]

CATEGORIES = ("algorithmic", "knowledge", "linguistic", "translation")  # of the packaged relations
OWN = "own"  # the category of a user's relation that names none
SLOT = "{s}"  # where a template has the source word


@dataclass(frozen=True)
class Relation:
    """Pairs of words that stand in one relation.

    Examples:
        >>> capitals = Relation("capital", "knowledge", (("France", "Paris"), ("Spain", "Madrid")))
        >>> len(capitals), capitals.targets_of("Spain")
        (2, ('Madrid',))
    """

    name: str  # such as "country-capital"
    category: str  # such as "knowledge"; maps are coloured by it
    pairs: tuple[tuple[str, str], ...]  # source, target; without the blank in front that both get as tokens
    copying: bool = False  # the target is the source itself: a head must put it first, not among the first ten
    source: str = ""  # where the facts come from
    templates: tuple[str, ...] = ()  # "The capital of {s} is": texts that the target completes

    def __len__(self) -> int:
        return len(self.pairs)

    def targets_of(self, source: str) -> tuple[str, ...]:
        """All words that count as right for this one."""
        return tuple(target for word, target in self.pairs if word == source)


@dataclass(frozen=True)
class Relations:
    """Relations with a name and a digest, so that a map can say what it was made from.

    Examples:
        >>> relations = packaged_relations()
        >>> relations["antonym"].pairs[0], relations.only(["plural", "antonym"]).names
        (('hot', 'cold'), ['plural', 'antonym'])
    """

    name: str  # what the atlas calls them
    items: tuple[Relation, ...]  # the relations

    def __len__(self) -> int:
        return len(self.items)

    def __iter__(self) -> Iterator[Relation]:
        return iter(self.items)

    def __getitem__(self, name: str) -> Relation:
        for item in self.items:
            if item.name == name:
                return item
        raise DataError(f"there is no relation {name!r} in the {self.name}. {did_you_mean(name, self.names)}")

    @property
    def names(self) -> list[str]:
        """In their order."""
        return [item.name for item in self.items]

    @property
    def digest(self) -> str:
        """Changes when anything in any relation does."""
        return digest_of(list(asdict(item).values()) for item in self.items)

    def only(self, names: Iterable[str]) -> Relations:
        """Those of these names, in that order."""
        return Relations(self.name, tuple(self[name] for name in dict.fromkeys(names)))


def packaged_relations() -> Relations:
    """The relations that come with Headwise, by category and then by name.

    Returns:
        All of them.

    Examples:
        >>> relations = packaged_relations()
        >>> len(relations), relations.names[-3:]
        (26, ['english-french', 'english-german', 'english-spanish'])
    """
    found = []
    for file in files("headwise.corpora").joinpath("data/relations").iterdir():
        if file.name.endswith(".json"):
            fields = fields_of_json(file.read_text(encoding="utf-8"), file.name, file.name)
            found += [_relation(name, one, file.name) for name, one in fields.items()]
    return Relations("packaged relations", tuple(sorted(found, key=lambda item: (item.category, item.name))))


def read_relations(path: str | Path) -> Relations:
    r"""A user's relations: a .json, .csv or .tsv file, or a folder of them.

    Args:
        path: the file or folder. In CSV a pair a line, below the names source and target; in JSON also a category, a
            source and templates.

    Returns:
        The relations, named after their files.

    Examples:
        >>> _ = (folder / "capital.csv").write_text("source,target\nFrance,Paris\nSpain,Madrid\n")
        >>> read_relations(folder / "capital.csv")["capital"].pairs
        (('France', 'Paris'), ('Spain', 'Madrid'))
    """
    path = Path(path)
    if not path.exists():
        raise DataError(f"there is no file or folder {path}; give a file of pairs ({', '.join(SUFFIXES)})")
    given = sorted(file for file in path.iterdir() if file.suffix in SUFFIXES) if path.is_dir() else [path]
    if not given:
        raise DataError(f"the folder {path} holds no file of pairs ({', '.join(SUFFIXES)})")
    found: dict[str, Relation] = {}
    for file in given:
        for name, fields in fields_of(file).items():
            if name in found:
                raise DataError(f"{file} holds a relation {name!r}, and so does another file; give it another name")
            found[name] = _relation(name, fields, str(file))
    if not found:
        raise DataError(f"{path} holds no relation; give at least one pair of words")
    return Relations(path.name, tuple(found.values()))


def _relation(name: str, fields: Mapping[str, Any], where: str) -> Relation:
    pairs = tuple((source.strip(), target.strip()) for source, target in fields["pairs"])
    _refuse_unusable(name, pairs, where)
    templates = tuple(fields.get("templates", ()))
    for template in templates:
        if not isinstance(template, str) or template.count(SLOT) != 1 or f" {SLOT}" not in template:
            raise DataError(
                f"the template {template!r} of {name!r} in {where} needs {SLOT} once, after a blank, for the source word"
            )
    return Relation(
        name=name,
        category=fields.get("category", OWN),
        pairs=pairs,
        copying=fields.get("copying", all(source == target for source, target in pairs)),
        source=fields.get("source", where),
        templates=templates,
    )


def _refuse_unusable(name: str, pairs: tuple[tuple[str, str], ...], where: str) -> None:
    if not name.strip():
        raise DataError(f"a relation of {where} has an empty name; give it one")
    if not pairs:
        raise DataError(f"the relation {name!r} of {where} has no pairs; give at least one")
    for number, pair in enumerate(pairs, start=1):
        if not all(pair):
            raise DataError(f"pair {number} of {name!r} in {where} has an empty word; fill it or take it out")
    (pair, count), *_ = Counter(pairs).most_common(1)
    if count > 1:
        raise DataError(
            f"the pair {pair[0]} -> {pair[1]} stands {count} times in {name!r} of {where}; it would count as often, "
            "so leave it once"
        )
