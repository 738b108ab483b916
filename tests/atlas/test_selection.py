import numpy as np
import pandas as pd
import pytest

from headwise.atlas.selection import select
from headwise.core.errors import DataError


@pytest.fixture
def frame() -> pd.DataFrame:
    return pd.DataFrame(
        {
            "layer": [0, 0, 1, 1],
            "head": [0, 1, 0, 1],
            "profile.induction": np.array([0.1, 0.5, np.nan, 0.3], "float32"),
            "profile.induction.low": [0.0, 0.4, 0.1, 0.2],
            "relations.category": ["Knowledge", "several", "Knowledge", "none"],
            "strong": [True, False, True, False],
        },
        index=pd.Index(["L0H0", "L0H1", "L1H0", "L1H1"], name="name"),
    )


@pytest.mark.parametrize(
    ("where", "names"),
    [
        ("profile.induction > 0.2", "L0H1 L1H1"),
        ("profile.induction > 0.2 and layer < 1", "L0H1"),
        ("layer == 1 or profile.induction.low >= 0.4", "L0H1 L1H0 L1H1"),
        ("not (layer == 1)", "L0H0 L0H1"),
        ("0.1 < profile.induction.low <= 0.2", "L1H1"),
        ("0.25 < profile.induction", "L0H1 L1H1"),
        ("profile.induction - profile.induction.low > 0.09 and head == 1", "L0H1 L1H1"),
        ("layer * 2 + head >= 2", "L1H0 L1H1"),
        ("-layer / 2 < 0", "L1H0 L1H1"),
        ("relations.category == 'Knowledge'", "L0H0 L1H0"),
        ('relations.category != "Knowledge"', "L0H1 L1H1"),
        ("name == 'L1H0'", "L1H0"),
        ("strong and layer == 0", "L0H0"),
        ("not strong", "L0H1 L1H1"),
        ("  layer > 5 ", ""),
        ("1 / layer > 5", "L0H0 L0H1"),
    ],
)
def test_filters(frame, where, names):
    assert list(select(frame, where).index) == names.split()


@pytest.mark.parametrize(
    "attack",
    [
        "__import__('os').system('touch /tmp/owned')",
        "layer.__class__.__mro__[1] == 1",
        "(1).__class__ == 1",
        "'a'.join(['b']) == 'a'",
        "layer[0] == 0",
        "[x for x in (1, 2)] == 1",
        "(lambda: 1)() == 1",
        "layer ** 9 > 1",
        "layer // 2 > 1",
        "layer % 2 == 1",
        "layer in (1, 2)",
        "layer if head else layer",
        "(layer := 3) > 1",
        "f'{layer}' == 'a'",
        "@frame > 1",
        "layer > 1; import os",
        "layer = 1",
        "layer & 1 == 1",
        "~strong",
        "None == layer",
        "layer > 1j",
        "b'a' == layer",
        "layer >",
        "",
        "\0",
        "layer > (" * 300,
        "-" * 1900 + "layer > 1",
        "9" * 1900 + " * layer > 1",
        "9" * 3000 + " > layer",
    ],
)
def test_what_is_no_filter_is_refused(frame, attack):
    with pytest.raises(DataError) as caught:
        select(frame, attack)
    assert "filter" in str(caught.value) or "There is no column" in str(caught.value)


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("profile.inducton > 0.3", "There is no column 'profile.inducton'. Did you mean 'profile.induction'?"),
        ("import_ > 1", "There is no column 'import_'. Known: head, layer"),
        ("layer = 1", r"== for equal"),
        ("layer and head == 1", "'layer' is not true or false; compare it with something"),
        ("layer + 1", "is not a comparison of a column"),
        ("'a' * 99999999999 == relations.category", "''a'' is not a number|\"'a'\" is not a number"),
        ("relations.category > 1", "cannot be computed: it compares text with a number"),
        ("relations.category == 1", "compared with text in quotes"),
        ("1 / 0 > layer", "cannot be computed: division by zero"),
        ("abs(layer) > 1", r"may not contain 'abs\(layer\)'; only column names"),
        ("('a').x == 1", "a dot belongs to the name of a column"),
    ],
)
def test_messages(frame, where, message):
    with pytest.raises(DataError, match=message):
        select(frame, where)


def test_sorting(frame):
    assert list(select(frame, sort="profile.induction").index) == ["L0H1", "L1H1", "L0H0", "L1H0"]
    assert list(select(frame, sort="profile.induction", descending=False).index) == ["L0H0", "L1H1", "L0H1", "L1H0"]
    assert list(select(frame, sort="layer").index) == ["L1H0", "L1H1", "L0H0", "L0H1"]  # ties keep their order
    assert list(select(frame, sort="name").index) == ["L1H1", "L1H0", "L0H1", "L0H0"]
    with pytest.raises(DataError, match="Did you mean 'layer'"):
        select(frame, sort="layr")


def test_limit(frame):
    assert list(select(frame, "layer < 1", sort="profile.induction", limit=1).index) == ["L0H1"]
    assert len(select(frame, limit=0)) == 0
    assert len(select(frame, limit=10)) == 4
