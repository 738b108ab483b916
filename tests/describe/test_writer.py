from __future__ import annotations

import pytest

from headwise.describe import Description, Writer
from headwise.describe.writer import listed, percent, significant, span

WORDS = Description("T", overview=("A.", "B."), detail=("C.", "D."), headline="H.")


def test_sections_leave_out_what_is_empty() -> None:
    assert WORDS.sections() == {"Overview": ["A.", "B."], "Detail": ["C.", "D."]}


def test_text_and_markdown() -> None:
    assert WORDS.text() == "T\n\nOverview\nA. B.\n\nDetail\nC.\nD.\n"
    assert WORDS.markdown() == "## T\n\n### Overview\n\nA. B.\n\n### Detail\n\n- C.\n- D.\n"
    assert WORDS.short() == "H."
    assert Description("T", overview=("A.", "B.")).short() == "A."


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (1e-9, "0.000000001"),
        (999.6, "1000"),
        (1234.5, "1,234"),
        (-12.345, "−12.3"),
        (float("nan"), "not known"),
    ],
)
def test_significant_digits(value: float, text: str) -> None:
    assert significant(value) == text


@pytest.mark.parametrize(
    ("share", "text"), [(0.5, "50 %"), (0.0996, "10 %"), (0.0004, "0.04 %"), (0.9949, "99 %"), (0.996, "99.6 %")]
)
def test_percents(share: float, text: str) -> None:
    assert percent(share) == text


def test_english() -> None:
    assert listed([]) == ""
    assert listed(["a", "b", "c"], last="or") == "a, b or c"
    assert span("layer", 3, 3) == "layer 3"
    assert span("head", 0, 2) == "heads 0 to 2"


def test_a_writer_keeps_every_number() -> None:
    writer = Writer("T")
    writer.add("overview", f"{writer.count(1, 'heads', 'head')}, {writer.count(2970, 'cells', 'cell')}.")
    writer.add("overview", "")
    writer.add("detail", f"{writer.fixed(-0.001, 'rho')} and {writer.percent(0.25, 'share')}.")
    words = writer.finish("H.")
    assert words.overview == ("1 head, 2,970 cells.",)
    assert words.detail == ("0.00 and 25 %.",)
    assert [(number.text, number.source) for number in words.numbers] == [
        ("1", "heads"),
        ("2,970", "cells"),
        ("0.00", "rho"),
        ("25 %", "share"),
    ]
