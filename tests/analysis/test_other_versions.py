"""A study that another version of Headwise measured is left out of what joins studies, with a note, and refused alone."""

import json
import re

import pytest
import xarray as xr
from synthetic.atlas import synthetic_atlas

from headwise.analysis import agreement, compare, head_report
from headwise.atlas import Atlas
from headwise.core.errors import AtlasError, HeadwiseWarning
from headwise.web.content import Content

STUDIES = ("profile", "relations", "functions", "causal", "streaming")


def of_version(dataset: xr.Dataset, version: int) -> xr.Dataset:
    origin = json.loads(dataset.attrs["provenance"]) | {"study_version": version}
    return dataset.assign_attrs(provenance=json.dumps(origin))


@pytest.fixture(scope="module", params=[1, 99])
def atlas(request, tmp_path_factory) -> Atlas:
    atlas = synthetic_atlas(tmp_path_factory.mktemp("versions") / "atlas", studies=STUDIES)
    atlas.store.write("streaming", of_version(atlas["streaming"], request.param))
    return atlas


def test_it_is_refused_alone_with_the_remedy(atlas):
    assert list(atlas.unreadable) == ["streaming"]
    remedy = "--redo streaming" if "version 1 " in atlas.unreadable["streaming"] else "use a newer Headwise"
    for read in (lambda: atlas["streaming"], lambda: atlas.describe("streaming")):
        with pytest.raises(AtlasError, match=rf"^streaming: the numbers are of version \d+ .*{remedy}"):
            read()


def test_what_joins_studies_goes_on_without_it(atlas):
    note = re.escape(f"left out of {atlas.location}: {atlas.unreadable['streaming']}")
    with pytest.warns(HeadwiseWarning, match=note) as caught:
        columns = {name.partition(".")[0] for name in atlas.heads().columns}
    assert {"profile", "functions"} <= columns and "streaming" not in columns and len(caught) == 1
    with pytest.warns(HeadwiseWarning, match=note):
        assert sorted(atlas.tree().children) == sorted({*STUDIES} - {"streaming"})
    with pytest.warns(HeadwiseWarning, match=note):
        assert "streaming" not in head_report(atlas, "L1H2").titles
    with pytest.warns(HeadwiseWarning, match=note):
        assert "streaming" not in {one.study for one in agreement(atlas, permutations=100).sets}
    found = compare(atlas, atlas)
    assert {one.study: one.status for one in found.studies} == {
        name: "refused" if name == "streaming" else "compared" for name in STUDIES
    }
    with pytest.raises(AtlasError, match=r"Nothing can be compared\. streaming: .* version \d+[^;]*; [^;]*\.$"):
        compare(atlas, atlas, studies=["streaming"])


def test_other_studies_are_described_without_a_note_where_it_has_nothing_to_add(atlas):
    assert atlas.describe("profile").text() and atlas.figure("profile", relative=True)


def test_the_page_says_why_and_how(atlas):
    content = Content(atlas)
    with pytest.warns(HeadwiseWarning, match="left out"):
        page = content.at("atlas")
    (one,) = (each for each in page["missing"] if each["key"] == "streaming")
    assert one["question"] == atlas.unreadable["streaming"]
    assert one["command"] == "headwise build --studies streaming --redo streaming -o atlas"
    assert "study/streaming" not in content.paths()


def test_an_atlas_of_another_version_alone_is_refused(tmp_path):
    atlas = synthetic_atlas(tmp_path / "atlas", studies=["streaming"])
    atlas.store.write("streaming", of_version(atlas["streaming"], 1))
    with pytest.raises(AtlasError, match="--redo streaming"):
        atlas.heads()
