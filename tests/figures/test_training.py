"""The figure of a training run, from numbers made up."""

import numpy as np

from headwise.figures import from_payload, save, to_payload, training


def told():
    looks = [{"kind": kind, "share": 0.05, "excess": 0.01} for kind in ("books", "plays")]
    return {
        "model": {"id": "who/model"},
        "recipe": {"steps": 20, "batch": 4, "length": 64, "hold": "loss", "slack": 0.03, "seed": 0},
        "texts_digest": "0123456789abcdef",
        "curve": [
            {"step": n, "share": 0.9 / n, "loss": 3.1, "dense": 3.0, "distance": 0.1, "pressure": n, "bias": 8.0 / n}
            for n in (10, 20)
        ],
        "looks": [{"step": 10, "kinds": looks}, {"step": 20, "kinds": looks}],
        "final": [
            {"texts": texts, "kind": kind, "bias": bias, "share": 0.02 * (2 + bias), "excess": 0.1 * bias**2}
            for texts, kind in (("held-out", "books"), ("unseen", "plays"))
            for bias in (-1.0, 0.0, 1.0)
        ],
    }


def test_what_is_drawn_is_what_was_measured(tmp_path):
    figure = training.figure(told())
    assert [panel.key for panel in figure.panels] == ["edges", "losses", "pressing", "costs"]
    expected, hard = figure.panel("edges").curves
    assert np.allclose(expected.y, [9.0, 4.5])  # per cent
    assert np.allclose(hard.y, 5.0)
    books, plays = figure.panel("costs").curves
    assert (books.style, plays.style) == ("line", "dashed")
    assert np.allclose(books.x, [2, 4, 6])
    assert "In the end 4 % of visible edges" in figure.notes[0]
    assert to_payload(from_payload(to_payload(figure))) == to_payload(figure)
    assert save(figure, tmp_path / "training.png").stat().st_size > 10_000
