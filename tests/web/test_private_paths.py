"""A model loaded from a folder: what is shown to others names it by the last part of its path."""

import dataclasses
import json

import pytest
from synthetic.profile import profile_dataset

from headwise.atlas import Atlas
from headwise.atlas.cards import hub_readme
from headwise.cli import serve
from headwise.core.errors import ModelError
from headwise.core.provenance import Provenance
from headwise.exports import _shown
from headwise.figures import to_payload
from headwise.web.content import Content

SECRET = "/home/somebody/private"


@pytest.fixture(scope="module")
def atlas(tmp_path_factory) -> Atlas:
    dataset = profile_dataset(3, 2, texts=4, randoms=2).assign_attrs(record='["value"]')
    origin = Provenance.from_attrs(dataset.attrs)
    model = origin.model | {"id": f"{SECRET}/tiny-model", "adapter": f"{SECRET}/my-adapter"}
    made = Atlas.create(tmp_path_factory.mktemp("private") / "atlas")
    made.add("profile", dataset.assign_attrs(dataclasses.replace(origin, model=model).to_attrs()))
    return made


def test_no_page_no_card_and_no_export_tells_where_the_model_is(atlas):
    content = Content(atlas)
    pages = {path: json.dumps(content.at(path)) for path in content.paths()}
    assert len(pages) > 3 and any("tiny-model" in text for text in pages.values())
    shown = [
        *pages.values(),
        hub_readme("me/atlas", atlas.provenances(), {"profile": "A headline."}),
        json.dumps(_shown(atlas.provenances()["profile"])),
        json.dumps(to_payload(atlas.figure("profile"))),
        atlas.describe("profile").text(),
    ]
    assert not [text[:200] for text in shown if SECRET in text]


def test_the_page_of_a_model_that_cannot_be_loaded(monkeypatch):
    def fails(model, **_):
        raise ModelError(f"There is no folder or file {model!r}; check the path.")

    monkeypatch.setattr("headwise.model.load", fails)
    with pytest.raises(ModelError, match="There is no folder or file 'tiny-model'; check the path"):
        serve._load(f"{SECRET}/tiny-model", "auto", None)
