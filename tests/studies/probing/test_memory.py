"""What is kept of a pass does not grow with the text: the chosen columns, and no view of a whole sequence."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from planted import tiny_model

from headwise.instruments import Activations
from headwise.model import Model, load
from headwise.seam import ForwardContext, Structure, observe
from headwise.studies.probing.positions import POSITIONS
from headwise.studies.probing.reading import Asked, read

LENGTHS = (24, 240)


@pytest.fixture(scope="module")
def model() -> Model:
    return load(*tiny_model(layers=3))


def asked(tokens: int) -> Asked:
    prompt, answer = tuple(5 + place % 90 for place in range(tokens - 10)), tuple(range(7, 17))
    places = np.arange(tokens - len(POSITIONS), tokens)
    return Asked("q", prompt, answer, (2, 4), places, places[:4])


def test_readings_have_one_size_whatever_the_text(model: Model) -> None:
    sizes = {read(Structure(model), [asked(tokens)], ("mlp_in", "residual"), None, 4096).nbytes for tokens in LENGTHS}
    assert len(sizes) == 1


def test_no_column_holds_on_to_its_sequence(model: Model) -> None:
    """The memory behind what is kept, while the pass runs and afterwards: views of whole sequences would show here."""
    held: list[int] = []

    class Weighed(Activations):
        def on_forward_end(self, context: ForwardContext) -> None:
            held.append(sum(kept.untyped_storage().nbytes() for kept in self._found.values()))
            super().on_forward_end(context)

    for tokens in LENGTHS:
        with torch.no_grad(), observe(Structure(model), Weighed(("mlp_in", "residual"), [-3, -1])):
            model.hf(torch.arange(5, 5 + tokens)[None] % 90)
    assert held[0] == held[1] == 3 * 2 * 2 * model.card.hidden_size * 4  # layers, sites, tokens, width, float32
