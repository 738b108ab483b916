"""Texts: those that come with Headwise, and a user's own."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from headwise.core.errors import DataError, ModelError
from headwise.corpora import Passage, Passages, packaged_passages, read_passages
from headwise.model import Model, load

# ---- the packaged ones ----------------------------------------------------------------------------------------------


def test_there_are_many_passages_in_varied_registers() -> None:
    passages = packaged_passages()
    assert len(passages) >= 60
    registers = Counter(item.register for item in passages.items)
    assert {"prose", "dialogue", "code", "lists", "tables", "maths", "exposition", "foreign"} <= set(registers)
    assert min(registers.values()) >= 5
    languages = Counter(item.language for item in passages.items)
    assert len(languages) >= 4
    assert languages["en"] > len(passages) / 2


def test_every_passage_has_its_own_id_and_text() -> None:
    items = packaged_passages().items
    assert len({item.id for item in items}) == len(items)
    assert len({item.text for item in items}) == len(items)
    for item in items:
        assert item.text == item.text.strip(), item.id
        assert item.text.isprintable() or set(item.text) >= {"\n"} or "\t" in item.text, item.id
        assert "\ufffd" not in item.text, item.id


@pytest.fixture(scope="module")
def default() -> Model:
    try:
        return load()
    except ModelError as error:
        pytest.skip(str(error))


@pytest.mark.real
def test_passages_are_200_to_600_tokens_long(default: Model) -> None:
    lengths = {item.id: len(default.ids(item.text)) for item in packaged_passages().items}
    assert {name: length for name, length in lengths.items() if not 200 <= length <= 600} == {}


# ---- digest and choice ----------------------------------------------------------------------------------------------

ITEMS = tuple(Passage(f"{register}{i}", f"text {register} {i}", register) for register in "ab" for i in range(3))


@pytest.mark.parametrize(
    "other",
    [
        (*ITEMS[:-1], Passage("b2", "text b 2!", "b")),
        (*ITEMS[:-1], Passage("b3", "text b 2", "b")),
        (*ITEMS[:-1], Passage("b2", "text b 2", "c")),
        ITEMS[:-1],
        ITEMS[::-1],
    ],
    ids=["text", "id", "register", "fewer", "order"],
)
def test_the_digest_changes_with_the_content(other: tuple[Passage, ...]) -> None:
    assert Passages("x", other).digest != Passages("x", ITEMS).digest


def test_the_digest_does_not_hang_on_the_name() -> None:
    assert Passages("x", ITEMS).digest == Passages("y", ITEMS).digest


def test_the_first_few_take_the_registers_in_turn() -> None:
    passages = Passages("x", (*ITEMS, Passage("c0", "text c 0", "c")))
    assert [item.id for item in passages.first(5).items] == ["a0", "b0", "c0", "a1", "b1"]
    assert len(passages.first(100)) == 7


# ---- a user's own ---------------------------------------------------------------------------------------------------


def test_jsonl_is_read_with_what_it_says(tmp_path: Path) -> None:
    file = tmp_path / "mine.jsonl"
    rows = [
        {"text": "Ein Satz.", "id": 7, "register": "prose", "language": "de", "source": "ignored"},
        {"text": "Only text.\nTwo lines."},
    ]
    file.write_text("\n\n".join(json.dumps(row) for row in rows) + "\n", encoding="utf-8")
    passages = read_passages(file)
    assert passages.name == "mine.jsonl"
    assert passages.items == (
        Passage("7", "Ein Satz.", "prose", "de"),
        Passage("mine-3", "Only text.\nTwo lines."),  # named after its line
    )


@pytest.mark.parametrize("mark", ["\u2028", "\u2029", "\x85"])
def test_only_a_line_feed_ends_a_line_of_jsonl(tmp_path: Path, mark: str) -> None:
    """Unicode knows more line ends, which JSON allows inside a string."""
    file = tmp_path / "mine.jsonl"
    file.write_text(json.dumps({"text": f"one{mark}two"}, ensure_ascii=False) + "\r\n", encoding="utf-8", newline="")
    assert [item.text for item in read_passages(file).items] == [f"one{mark}two"]


@pytest.mark.parametrize("name", ["mine.jsonl", "mine.txt"])
def test_a_byte_order_mark_is_no_text(tmp_path: Path, name: str) -> None:
    """Some editors put one in front."""
    text = '{"text": "abc"}' if name.endswith("jsonl") else "abc"
    (tmp_path / name).write_text(text, encoding="utf-8-sig")
    assert read_passages(tmp_path / name).items[0].text == "abc"


def test_a_text_file_is_cut_at_blank_lines(tmp_path: Path) -> None:
    file = tmp_path / "mine.txt"
    file.write_text("First,\nstill first.\n\n\n\nSecond.\r\n\r\nThird.\n", encoding="utf-8", newline="")
    assert read_passages(file).items == (
        Passage("mine-1", "First,\nstill first."),
        Passage("mine-2", "Second."),
        Passage("mine-3", "Third."),
    )


def test_a_folder_gives_a_text_a_file(tmp_path: Path) -> None:
    for name, text in (("b.txt", "Two\n\nparts"), ("a.txt", "One"), ("c.txt", "  \n"), ("note.md", "Not this")):
        (tmp_path / name).write_text(text, encoding="utf-8")
    assert [(item.id, item.text) for item in read_passages(tmp_path).items] == [("a", "One"), ("b", "Two\n\nparts")]


def test_a_path_may_be_a_string(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("One")
    assert len(read_passages(str(tmp_path / "mine.txt"))) == 1


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            "a.jsonl",
            '{"text": "x"}\n{"text": ',
            r"line 2 of .*a\.jsonl is not JSON \(.*\); write one JSON object per line",
        ),
        ("a.jsonl", '["x"]', r'line 1 of .*a\.jsonl has no text; every line needs a field "text" that is a string'),
        ("a.jsonl", '\n{"txt": "x"}', r"line 2 of .* has no text"),
        ("a.jsonl", '{"text": 3}', r"line 1 of .* has no text"),
        ("a.jsonl", '{"text": null}', r"line 1 of .* has no text"),
        ("a.jsonl", '{"text": " "}\n', r"a\.jsonl contains no text; give at least one passage"),
        ("a.jsonl", "", r"a\.jsonl contains no text; give at least one passage"),
        ("a.txt", " \n\n \n", r"a\.txt contains no text; give at least one passage"),
        (
            "a.jsonl",
            '{"text": "x", "id": "p"}\n{"text": "y", "id": "p"}',
            r"the id 'p' is used by 2 passages; give each its own id",
        ),
    ],
)
def test_what_cannot_be_read_is_refused(tmp_path: Path, name: str, content: str, message: str) -> None:
    (tmp_path / name).write_text(content, encoding="utf-8")
    with pytest.raises(DataError, match=message):
        read_passages(tmp_path / name)


@pytest.mark.parametrize("name", ["a.txt", "a.jsonl"])
def test_bytes_that_are_not_utf_8_are_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes("Straße".encode("latin-1"))
    for path in (tmp_path / name, tmp_path) if name.endswith("txt") else (tmp_path / name,):
        with pytest.raises(DataError, match=rf"{name} is not UTF-8 text \(.* at byte 4\); convert it first"):
            read_passages(path)


def test_a_path_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        DataError, match=r"there is no file or folder .*nowhere; give a \.jsonl or \.txt file, or a folder"
    ):
        read_passages(tmp_path / "nowhere")


def test_an_empty_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="contains no text; give at least one passage"):
        read_passages(tmp_path)
