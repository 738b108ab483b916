"""The pattern view's state: what Python sends, and what it answers when a head is chosen."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("anywidget", reason='anywidget is not installed (pip install "headwise[notebook]")')

from headwise.core.errors import DataError
from headwise.notebook import PatternView, look


def test_the_state_is_what_the_page_needs(atlas):
    view = PatternView(atlas)
    assert len(view.names) == 12 and len(view.labels) == 21
    assert len(view.tiles) == 12 * view.side**2 and view.grid == ["Head", "Layer"]
    assert view.title == atlas.provenance("patterns").model["id"]
    sent = view.get_state()
    assert {"_esm", "tiles", "large", "chosen", "labels"} <= set(sent) and "export default" in sent["_esm"]
    assert "http" not in sent["_esm"] and "import " not in sent["_esm"].replace("imports nothing", "")


def test_choosing_a_head_sends_its_whole_map(atlas):
    view = PatternView(atlas)
    assert (view.chosen, view.large_of) == ("L0H0", "L0H0")
    view.set_state({"chosen": "L2H1"})  # as a message from the page does
    expected = atlas["patterns"]["shown"].isel(condition=0, layer=2, head=1).values.astype("<f4")
    found = np.frombuffer(view.large, "<f4").reshape(21, 21)
    assert view.large_of == "L2H1" and np.array_equal(found, expected, equal_nan=True)


def test_a_head_that_is_not_there_is_refused(atlas):
    view = PatternView(atlas)
    with pytest.raises(DataError, match="no head 'L9H9'"):
        view.chosen = "L9H9"
    assert view.chosen == "L0H0"


def test_refusals_say_what_to_give(reading):
    with pytest.raises(DataError, match=r"PatternView\(reading, model.tokens\(text\)\)"):
        PatternView(reading())
    with pytest.raises(DataError, match=r"not a str; for a model and a text there is headwise.notebook.look"):
        PatternView("atlas")


def test_a_reading_of_the_instrument_is_shown(tiny):
    text = "one two three"
    view = look(tiny, text)
    tokens = tiny.tokens(text)
    assert view.labels == tokens and len(view.names) == tiny.card.layers * tiny.card.heads
    rows = np.nansum(np.frombuffer(view.large, "<f4").reshape(len(tokens), -1), axis=1)
    assert rows == pytest.approx(np.ones(len(tokens)), abs=1e-5)
    some = look(tiny, text, heads="L0H1")
    assert some.names == ["L0H1"] and repr(some) == f"<PatternView: 1 heads, {len(tokens)} tokens, L0H1 open>"


def test_without_anywidget_one_sentence_tells_what_to_install():
    code = (
        "import sys\nsys.modules['anywidget'] = None\n"
        "from headwise.core.errors import HeadwiseError\n"
        "try:\n    from headwise.notebook import PatternView\nexcept HeadwiseError as error:\n    print(error)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == 'The pattern view needs the package anywidget: pip install "headwise[notebook]".'


def test_an_atlas_is_looked_at_without_torch():
    code = "from headwise.notebook import PatternView\nimport sys\nprint('torch' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "False"
