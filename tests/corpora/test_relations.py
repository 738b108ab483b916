"""The packaged relations are sound, and a user's file is read or refused with a sentence."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from headwise.core.errors import DataError
from headwise.corpora import CATEGORIES, SLOT, Relation, Relations, packaged_relations, read_relations

ROOT = Path(__file__).parents[2]
SHEET = {
    "algorithmic": ["copying", "name-copying", "first-letter", "last-letter", "year-following"],
    "knowledge": ["country-capital", "country-language", "object-superclass", "product-company", "work-location"],
    "linguistic": ["antonym", "comparative", "superlative", "entity-pronoun", "past-tense", "compound", "homophone",
                   "synonym"],
    "translation": ["english-french", "english-spanish"],
}  # fmt: skip
BESIDE = ["plural", "uppercase", "capitalised", "number-word", "successor", "english-german"]


@pytest.fixture(scope="module")
def packaged():
    return packaged_relations()


def test_all_relations_of_the_sheet_and_more_are_there(packaged):
    for category, names in SHEET.items():
        assert {packaged[name].category for name in names} == {category}
    assert set(packaged.names) == {name for names in SHEET.values() for name in names} | set(BESIDE)
    assert sum(map(len, packaged)) >= 3000
    assert list(dict.fromkeys(item.category for item in packaged)) == list(CATEGORIES)


def test_every_packaged_relation_is_sound(packaged):
    for item in packaged:
        assert len(set(item.pairs)) == len(item.pairs) >= 60, item.name
        assert item.source, item.name
        assert len(item.templates) >= 2 and all(f" {SLOT}" in text for text in item.templates), item.name
        assert all(word == word.strip() and " " not in word and word for pair in item.pairs for word in pair), item.name
        if item.copying:
            assert all(source == target for source, target in item.pairs)
        elif item.name not in ("uppercase", "capitalised"):
            assert all(source.casefold() != target.casefold() for source, target in item.pairs), item.name


def test_a_rule_made_what_it_says(packaged):
    assert all(target == source[0] for source, target in packaged["first-letter"].pairs)
    assert all(target == source[-1] for source, target in packaged["last-letter"].pairs)
    assert all(target == source.upper() for source, target in packaged["uppercase"].pairs)
    assert all(int(target) == int(source) + 1 for source, target in packaged["year-following"].pairs)


def test_some_facts(packaged):
    assert ("France", "Paris") in packaged["country-capital"].pairs
    assert packaged["country-language"].targets_of("Canada") == ("English", "French")
    assert ("go", "went") in packaged["past-tense"].pairs
    assert ("dog", "chien") in packaged["english-french"].pairs
    assert {item.name for item in packaged if item.copying} == {"copying", "name-copying"}


def test_the_files_are_what_the_lists_give():
    run = subprocess.run([sys.executable, ROOT / "scripts" / "make_relations.py", "--check"], capture_output=True)
    assert run.returncode == 0, run.stdout


def test_the_digest_follows_the_content():
    one = Relation("antonym", "linguistic", (("hot", "cold"), ("big", "small")))
    other = Relation("antonym", "linguistic", (("hot", "cold"), ("big", "tiny")))
    assert Relations("a", (one,)).digest == Relations("b", (one,)).digest != Relations("a", (other,)).digest


def test_relations_by_name(packaged):
    assert packaged.only(["plural", "antonym", "plural"]).names == ["plural", "antonym"]
    with pytest.raises(DataError, match=r"no relation 'antonyms'.*Did you mean 'antonym'"):
        packaged["antonyms"]


# ---- a user's own ---------------------------------------------------------------------------------------------------


def written(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def test_a_json_list_is_a_relation_named_like_its_file(tmp_path):
    (only,) = read_relations(written(tmp_path, "antonym.json", '[["hot", "cold"], [" big ", "small"]]'))
    assert (only.name, only.pairs) == ("antonym", (("hot", "cold"), ("big", "small")))
    assert only.category == "own" and not only.copying and only.source.endswith("antonym.json")


def test_a_json_object_holds_several_relations(tmp_path):
    content = {
        "same": [["a", "a"], ["b", "b"]],
        "plural": {"pairs": [["dog", "dogs"]], "category": "linguistic", "templates": ["One {s}, two"]},
    }
    same, plural = read_relations(written(tmp_path, "mine.json", json.dumps(content)))
    assert same.copying and same.category == "own"
    assert (plural.category, plural.templates, plural.copying) == ("linguistic", ("One {s}, two",), False)


@pytest.mark.parametrize(("suffix", "sign"), [("csv", ","), ("tsv", "\t")])
def test_tables(tmp_path, suffix, sign):
    rows = [["source", "target", "relation", "category"], ["hot", "cold", "antonym", "linguistic"]]
    rows += [["big", "small", "antonym", ""], ["Peru", "Lima", "capital", "knowledge"]]
    path = written(tmp_path, f"mine.{suffix}", "\ufeff" + "\r\n".join(sign.join(row) for row in rows))
    antonym, capital = read_relations(path)
    assert antonym == Relation("antonym", "linguistic", (("hot", "cold"), ("big", "small")), source=str(path))
    assert (capital.name, capital.category, capital.pairs) == ("capital", "knowledge", (("Peru", "Lima"),))


def test_a_table_without_a_relation_column_has_the_files_name(tmp_path):
    (only,) = read_relations(written(tmp_path, "colour.csv", 'Target,Source\nred,"blood"\n\ngreen,grass\n'))
    assert (only.name, only.pairs) == ("colour", (("blood", "red"), ("grass", "green")))


def test_a_folder_is_all_its_files(tmp_path):
    written(tmp_path, "b.json", '[["x", "y"]]')
    written(tmp_path, "a.csv", "source,target\nu,v\n")
    written(tmp_path, "notes.txt", "not a relation")
    assert read_relations(tmp_path).names == ["a", "b"]
    written(tmp_path, "c.json", '{"a": [["x", "y"]]}')
    with pytest.raises(DataError, match="contains a relation 'a', and so does another file"):
        read_relations(tmp_path)


BAD = {  # what is wrong -> file name, content, a part of the sentence
    "empty": ("a.json", "", "is empty; give at least one pair"),
    "blank": ("a.csv", " \n\n", "is empty"),
    "suffix": ("a.xlsx", "x", r"suffix '.xlsx'; relations are read from .json, .csv, .tsv"),
    "malformed": ("a.json", '[["hot", "cold"', "is not JSON .*line 1.*write a list of pairs"),
    "number": ("a.json", "3", "contains neither pairs nor relations .*; write a list of pairs"),
    "no pairs": ("a.json", "[]", "'a' of .* has no pairs; give at least one"),
    "no relations": ("a.json", "{}", "contains no relation; give at least one pair"),
    "one column in JSON": ("a.json", '["hot", "cold"]', 'item 1 of .* is "hot", not a pair of words'),
    "three columns in JSON": ("a.json", '[["a", "b"], ["a", "b", "c"]]', "item 2 of .*not a pair"),
    "not words": ("a.json", '{"year": [[1990, 1991]]}', "item 1 of the relation 'year' .*not a pair of words"),
    "an object": ("a.json", '{"year": {"pair": []}}', "field 'pair'. Did you mean 'pairs'"),
    "a kind": ("a.json", '{"year": {"pairs": [["a", "b"]], "copying": "yes"}}', "'yes' under 'copying'; give true or false"),
    "template": ("a.json", '{"y": {"pairs": [["a", "b"]], "templates": ["so {x}"]}}', "needs {s} once, after a space"),
    "one column": ("a.csv", "source\nhot\n", "columns source; it must name at least source and target, separated by a comma"),
    "tabs in a CSV": ("a.csv", "source\ttarget\nhot\tcold\n", "must name at least source and target"),
    "no header": ("a.tsv", "hot\tcold\nbig\tsmall\n", "columns hot, cold; it must name at least source and target"),
    "only a header": ("a.tsv", "source\ttarget\n", "contains no relation"),
    "a short line": ("a.csv", "source,target\nhot,cold\nbig\n", "line 3 of .* has 1 columns and the first line 2"),
    "an empty word": ("a.csv", "source,target\nhot,cold\nbig,\n", "pair 2 of 'a' in .* has an empty word"),
    "twice": ("a.csv", "source,target\nhot,cold\nhot, cold\n", "hot -> cold occurs 2 times .* remove the duplicates"),
    "two categories": (
        "a.csv", "source,target,category\nhot,cold,x\nbig,small,y\n", "category 'y', and an earlier line into 'x'"
    ),
    "encoding": ("a.csv", "source,target\nété,summer\n".encode("latin-1"), "is not UTF-8 text .*convert it first"),
    "name": ("a.json", '{" ": [["a", "b"]]}', "empty name"),
}  # fmt: skip


@pytest.mark.parametrize("what", BAD)
def test_what_cannot_be_used_is_refused(tmp_path, what):
    name, content, sentence = BAD[what]
    with pytest.raises(DataError, match=sentence) as raised:
        read_relations(written(tmp_path, name, content))
    assert "\n" not in str(raised.value)


def test_a_missing_file_and_an_empty_folder(tmp_path):
    with pytest.raises(DataError, match="there is no file or folder"):
        read_relations(tmp_path / "none.json")
    with pytest.raises(DataError, match="contains no file of pairs"):
        read_relations(tmp_path)
