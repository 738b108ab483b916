"""Relations between words, such as country -> capital: the packaged relations, and a user's own.

A relation is a list of pairs (source, target). The target that a head's weights or output assign to a source word is
compared with the true one, so both words must be single tokens. The 26 packaged relations are ours, in
four categories, each with the source of its facts (made by scripts/make_relations.py). A source with several targets
(Canada: English, French) has one pair per target.

A user's file is JSON, CSV or TSV; a folder is read as all such files in it:

    [["hot", "cold"], ["big", "small"]]                                  pairs; the file name names the relation
    {"antonym": [["hot", "cold"], ...], "plural": [...]}                 several relations
    {"antonym": {"pairs": [...], "category": "linguistic", "copying": false, "source": "...", "templates": [...]}}
    source,target[,relation][,category]                                  first line of a CSV or TSV file

`single_token_pairs` retains the pairs whose words are single tokens of a tokenizer: a head's OV matrix maps one token to one
token, so the published rule (Elhelo & Geva 2024) requires source and target, each with a leading space as inside a
sentence, to be exactly one token, and at least 30 such pairs per relation. Dropped pairs are counted by reason: a
tokenizer that splits numbers into digits has no years. The leading space is produced by writing the word after another
one, because some tokenizers add a space to the beginning of a text: the ids of "the cold" must be those of "the" plus one.
A word that maps to the unknown token does not count. Cost: one tokenizer call per relation.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from headwise.core.errors import DataError, did_you_mean
from headwise.core.parsing import convert, parse
from headwise.corpora.rows import digest_of, read_table, translate_read_errors

CATEGORIES = ("algorithmic", "knowledge", "linguistic", "translation")  # of the packaged relations
DEFAULT_CATEGORY = "own"  # of a user's relation without a category
SLOT = "{s}"  # the placeholder of the source word in a template


@dataclass(frozen=True)
class Relation:
    """Pairs of words in one relation.

    Examples:
        >>> capitals = Relation("capital", "knowledge", (("France", "Paris"), ("Spain", "Madrid")))
        >>> len(capitals), capitals.targets_of("Spain")
        (2, ('Madrid',))
    """

    name: str  # such as "country-capital"
    category: str  # such as "knowledge"; maps are coloured by it
    pairs: tuple[tuple[str, str], ...]  # source, target; without the leading space that both have as tokens
    copying: bool = False  # the target is the source itself: a head must rank it first, not in the top ten
    source: str = ""  # where the facts come from
    templates: tuple[str, ...] = ()  # "The capital of {s} is": texts that the target completes

    def __len__(self) -> int:
        return len(self.pairs)

    def targets_of(self, source: str) -> tuple[str, ...]:
        """All right targets of a source."""
        return tuple(target for word, target in self.pairs if word == source)


@dataclass(frozen=True)
class Relations:
    """Relations with a name and a digest for the provenance of a map.

    Examples:
        >>> relations = packaged_relations()
        >>> relations["antonym"].pairs[0], relations.only(["plural", "antonym"]).names
        (('hot', 'cold'), ['plural', 'antonym'])
    """

    name: str  # the atlas records it
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
        """The relations' names, in order."""
        return [item.name for item in self.items]

    @property
    def digest(self) -> str:
        """Changes when anything in any relation does."""
        return digest_of(list(asdict(item).values()) for item in self.items)

    def only(self, names: Iterable[str]) -> Relations:
        """The relations of these names, in that order."""
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
            fields = _fields_of_json(file.read_text(encoding="utf-8"), file.name, file.name)
            found += [_relation(name, one, file.name) for name, one in fields.items()]
    return Relations("packaged relations", tuple(sorted(found, key=lambda item: (item.category, item.name))))


def read_relations(path: str | Path) -> Relations:
    r"""A user's relations: a .json, .csv or .tsv file, or a folder of them.

    Args:
        path: the file or folder. CSV: one pair per line, below the header source,target; JSON: optionally with a
            category, a source and templates.

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
    files = sorted(file for file in path.iterdir() if file.suffix in SUFFIXES) if path.is_dir() else [path]
    if not files:
        raise DataError(f"the folder {path} contains no file of pairs ({', '.join(SUFFIXES)})")
    found: dict[str, Relation] = {}
    for file in files:
        for name, fields in _read_fields(file).items():
            if name in found:
                raise DataError(f"{file} contains a relation {name!r}, and so does another file; rename one of them")
            found[name] = _relation(name, fields, str(file))
    if not found:
        raise DataError(f"{path} contains no relation; give at least one pair of words")
    return Relations(path.name, tuple(found.values()))


def _relation(name: str, fields: Mapping[str, Any], where: str) -> Relation:
    pairs = tuple((source.strip(), target.strip()) for source, target in fields["pairs"])
    _require_usable(name, pairs, where)
    templates = tuple(fields.get("templates", ()))
    for template in templates:
        if template.count(SLOT) != 1 or f" {SLOT}" not in template:
            raise DataError(
                f"the template {template!r} of {name!r} in {where} needs {SLOT} once, after a space, for the source word"
            )
    return Relation(
        name=name,
        category=fields.get("category", DEFAULT_CATEGORY),
        pairs=pairs,
        copying=fields.get("copying", all(source == target for source, target in pairs)),
        source=fields.get("source", where),
        templates=templates,
    )


def _require_usable(name: str, pairs: tuple[tuple[str, str], ...], where: str) -> None:
    if not name.strip():
        raise DataError(f"a relation of {where} has an empty name; give it one")
    if not pairs:
        raise DataError(f"the relation {name!r} of {where} has no pairs; give at least one")
    for number, pair in enumerate(pairs, start=1):
        if not all(pair):
            raise DataError(f"pair {number} of {name!r} in {where} has an empty word; fill it or remove the pair")
    (pair, count), *_ = Counter(pairs).most_common(1)
    if count > 1:
        raise DataError(
            f"the pair {pair[0]} -> {pair[1]} occurs {count} times in {name!r} of {where} and would count {count} "
            "times; remove the duplicates"
        )


SUFFIXES = (".json", ".csv", ".tsv")
FIELDS = ("pairs", "category", "copying", "source", "templates")

EXPECTED = 'a list of pairs such as [["hot", "cold"], ["big", "small"]]'

KINDS: dict[str, tuple[Any, str]] = {
    "category": (str | None, "a text"), "copying": (bool | None, "true or false"), "source": (str | None, "a text"),
    "templates": (list[str] | None, "a list of texts"),
}  # fmt: skip
Fields = dict[str, Any]


def _read_fields(path: Path) -> dict[str, Fields]:
    """The fields of every relation in a file, by the relation's name."""
    if path.suffix not in SUFFIXES:
        raise DataError(f"{path.name} has the suffix {path.suffix!r}; relations are read from {', '.join(SUFFIXES)}")
    with translate_read_errors(path):
        text = path.read_bytes().decode("utf-8-sig")  # without the byte order mark that some editors write
    if not text.strip():
        raise DataError(f"{path} is empty; give at least one pair of words")
    if path.suffix == ".json":
        return _fields_of_json(text, path.stem, str(path))
    return _fields_of_table(text, path, "," if path.suffix == ".csv" else "\t")


# ---- JSON -----------------------------------------------------------------------------------------------------------


def _fields_of_json(text: str, name: str, where: str) -> dict[str, Fields]:
    """A list of pairs, named `name`, or an object of relations."""
    try:
        content: list[Any] | dict[str, Any] = parse(text, list[Any] | dict[str, Any])
    except json.JSONDecodeError as error:
        raise DataError(f"{where} is not JSON ({error.msg} on line {error.lineno}); write {EXPECTED}") from error
    except ValueError as error:
        raise DataError(
            f"{where} contains neither pairs nor relations ({error}); write {EXPECTED}, or an object of such lists"
        ) from error
    if isinstance(content, list):
        return {name: {"pairs": _pairs(content, where)}}
    return {key: _fields(value, f"the relation {key!r} of {where}") for key, value in content.items()}


def _fields(value: Any, where: str) -> Fields:
    if not isinstance(value, dict):
        return {"pairs": _pairs(value, where)}
    for key in value:
        if key not in FIELDS:
            raise DataError(f"{where} has a field {key!r}. {did_you_mean(key, FIELDS)}")
    for key, (kind, called) in KINDS.items():
        try:
            convert(value.get(key), kind)
        except ValueError as error:
            raise DataError(f"{where} has {str(value[key])[:80]!r} under {key!r}; give {called}") from error
    known = {key: given for key, given in value.items() if given is not None}
    return known | {"pairs": _pairs(value.get("pairs"), where)}


def _pairs(content: Any, where: str) -> list[tuple[str, str]]:
    if not isinstance(content, list):
        raise DataError(f"{where} has no list of pairs; write {EXPECTED}")
    pairs: list[tuple[str, str]] = []
    for number, item in enumerate(content, start=1):
        try:
            pairs.append(convert(item, tuple[str, str]))
        except ValueError as error:
            text = json.dumps(item, ensure_ascii=False)
            text = text if len(text) <= 60 else text[:57] + "..."
            raise DataError(f"item {number} of {where} is {text}, not a pair of words; write {EXPECTED}") from error
    return pairs


# ---- CSV and TSV ----------------------------------------------------------------------------------------------------


def _fields_of_table(text: str, path: Path, delimiter: str) -> dict[str, Fields]:
    with translate_read_errors(path):
        rows = [row for row in read_table(text, delimiter) if any(row)]
    header = [name.strip().casefold() for name in rows[0]]
    if not {"source", "target"} <= set(header):
        sign = {",": "a comma", "\t": "a tab"}[delimiter]
        raise DataError(
            f"the first line of {path} has the columns {', '.join(header)}; it must name at least source and target, "
            f"separated by {sign}"
        )
    found: dict[str, Fields] = {}
    for number, row in enumerate(rows[1:], start=2):
        if len(row) != len(header):
            raise DataError(
                f"line {number} of {path} has {len(row)} columns and the first line {len(header)}; make them equal"
            )
        cells = dict(zip(header, row, strict=True))
        name, category = cells.get("relation", "").strip() or path.stem, cells.get("category", "").strip()
        fields = found.setdefault(name, {"pairs": []})
        if category and fields.setdefault("category", category) != category:
            raise DataError(
                f"line {number} of {path} puts the relation {name!r} into the category {category!r}, and an earlier "
                f"line into {fields['category']!r}; choose one"
            )
        fields["pairs"].append((cells["source"], cells["target"]))
    return found


# ---- single tokens --------------------------------------------------------------------------------------------------

MIN_PAIRS = 30  # single-token pairs of a relation that is scored
BEFORE = "the"

SOURCE = "source is several tokens"
TARGET = "target is several tokens"
BOTH = "both are several tokens"
SAME = "source and target are one token"
DUPLICATE = "another pair has the same tokens"


@dataclass(frozen=True)
class SingleTokenPairs:
    """The pairs of a relation that are single tokens in one tokenizer."""

    relation: Relation
    pairs: tuple[tuple[str, str], ...]  # retained pairs
    sources: tuple[int, ...]  # one token id per retained pair
    targets: tuple[int, ...]
    dropped: Mapping[str, int]  # reason -> number of pairs

    def __len__(self) -> int:
        return len(self.pairs)

    @property
    def counts(self) -> bool:
        """Whether enough pairs are left to score the relation."""
        return len(self.pairs) >= MIN_PAIRS

    @property
    def words(self) -> str:
        """The numbers of retained and dropped pairs, in one sentence."""
        total = len(self.relation)
        why = ", ".join(f"{reason}: {count}" for reason, count in self.dropped.items())
        left = f"{len(self)} of {total} pairs are single tokens" + (f" ({why})" if why else "")
        return left if self.counts else f"{left}; {MIN_PAIRS} are needed, so the relation is not scored"


def single_token_pairs(relation: Relation, tokenizer: Any) -> SingleTokenPairs:
    """The pairs of a relation whose words are one token each, and the numbers of dropped pairs by reason."""
    tokens = single_token_ids([word for pair in relation.pairs for word in pair], tokenizer)
    retained: dict[tuple[int, int], tuple[str, str]] = {}
    dropped: Counter[str] = Counter()
    for pair in relation.pairs:
        source, target = (tokens[word] for word in pair)
        if source is None or target is None:
            dropped[BOTH if source is None and target is None else SOURCE if source is None else TARGET] += 1
        elif source == target and not relation.copying:
            dropped[SAME] += 1
        elif (source, target) in retained:
            dropped[DUPLICATE] += 1
        else:
            retained[source, target] = pair
    sources, targets = zip(*retained, strict=True) if retained else ((), ())
    return SingleTokenPairs(relation, tuple(retained.values()), sources, targets, dict(dropped))


def single_token_ids(words: Sequence[str], tokenizer: Any) -> dict[str, int | None]:
    """The token id of each word inside a sentence; None if the word is not a single token."""
    unique = list(dict.fromkeys(words))
    texts = [BEFORE, *(f"{BEFORE} {word}" for word in unique)]
    before, *rest = tokenizer(texts, add_special_tokens=False, verbose=False)["input_ids"]
    found: dict[str, int | None] = {}
    for word, ids in zip(unique, rest, strict=True):
        one = len(ids) == len(before) + 1 and ids[:-1] == before and ids[-1] != tokenizer.unk_token_id
        found[word] = int(ids[-1]) if one else None
    return found
