import json
import subprocess
import sys

import pytest
import xarray as xr

from headwise.atlas import Atlas
from headwise.core.errors import AtlasError, StudyError
from headwise.core.schema import annotate
from headwise.studies.registry import dataset_spec


@pytest.fixture
def atlas(tmp_path, profile) -> Atlas:
    atlas = Atlas.create(tmp_path / "deep" / "atlas")
    atlas.add("profile", profile(1.0))
    return atlas


def test_open_says_how_to_build(tmp_path):
    with pytest.raises(AtlasError, match=r"There is no atlas at .*none; make one with headwise build -o .*none\."):
        Atlas.open(tmp_path / "none")


@pytest.mark.parametrize("content", [None, "{}", "nonsense", "[]", '{"attributes": {"format": "other"}}'])
def test_open_refuses_what_is_no_atlas(tmp_path, content):
    if content is not None:
        (tmp_path / "zarr.json").write_text(content)
    with pytest.raises(AtlasError, match=r"is not an atlas .* give the folder that headwise build wrote"):
        Atlas.open(tmp_path)


def test_open_refuses_a_file(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(AtlasError, match="is not an atlas"):
        Atlas.open(tmp_path / "file")


def test_open_refuses_a_newer_and_an_older_format(atlas):
    root = json.loads((atlas.path / "zarr.json").read_text())
    root["attributes"]["format_version"] = 2
    (atlas.path / "zarr.json").write_text(json.dumps(root))
    with pytest.raises(AtlasError, match=r"has format version 2, and this Headwise reads version 1; use a newer"):
        Atlas.open(atlas.path)
    with pytest.raises(AtlasError, match="format version 2"):
        Atlas.create(atlas.path)
    root["attributes"]["format_version"] = 0
    (atlas.path / "zarr.json").write_text(json.dumps(root))
    with pytest.raises(AtlasError, match=r"has format version 0, .*; build it again with headwise build -o NEW_FOLDER"):
        Atlas.open(atlas.path)


def test_create_opens_what_is_there(atlas):
    assert Atlas.create(atlas.path).studies == ["profile"]


def test_create_refuses_a_folder_with_other_things(tmp_path):
    (tmp_path / "thesis.tex").write_text("")
    with pytest.raises(AtlasError, match=r"is not empty \(it holds thesis.tex\) and is not an atlas; choose a new"):
        Atlas.create(tmp_path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["thesis.tex"]


def test_create_goes_on_after_a_kill(tmp_path):
    (tmp_path / ".swap").mkdir()
    (tmp_path / ".shards").mkdir()
    assert Atlas.create(tmp_path).studies == []


def test_a_study_comes_back(atlas, profile):
    dataset = atlas["profile"]
    xr.testing.assert_identical(dataset, annotate(profile(1.0), dataset_spec("profile").schema))
    assert "profile" in atlas
    assert "spectral" not in atlas
    assert atlas.provenance("profile").data["name"] == "packaged-passages"


def test_unknown_and_unbuilt_studies(atlas, tmp_path):
    with pytest.raises(StudyError, match=r"There is no study 'profil'. Did you mean 'profile'\?"):
        atlas["profil"]
    empty = Atlas.create(tmp_path / "empty")
    with pytest.raises(
        StudyError, match=r"'profile' is not in the atlas .*; add it with headwise build --studies profile"
    ):
        empty["profile"]
    with pytest.raises(StudyError, match="There is no study 'x'"):
        empty.provenance("x")


@pytest.mark.parametrize("name", ["", "Profile", "../x", ".hidden", "a/b", "a b", "a.b"])
def test_names_that_are_no_names(atlas, profile, name):
    with pytest.raises(StudyError, match="cannot name a study"):
        atlas.add(name, profile())


def test_add_checks_first(atlas, profile):
    with pytest.raises(AtlasError, match=r"'low'.* is missing"):
        atlas.add("profile", profile(2.0).drop_vars("low"))
    assert (atlas["profile"].value == 1).all()


def test_tree_and_heads(atlas):
    tree = atlas.tree()
    assert list(tree.children) == ["profile"]
    assert tree.attrs["format"] == "headwise-atlas"
    assert len(atlas.heads()) == 6


def test_words_for_people(atlas, tmp_path, profile):
    assert repr(atlas) == f"Atlas {atlas.path}\n  profile: tiny on packaged-passages (4)"
    assert repr(Atlas.create(tmp_path / "empty")).endswith("empty (empty)")
    atlas.add("profile", profile(model={"id": "<b>&", "digest": "d1"}))
    assert "Atlas of &lt;b&gt;&amp;" in atlas._repr_html_() and "packaged-passages (4)" in atlas._repr_html_()
    assert "<b>" not in atlas._repr_html_()


def test_the_reading_half_needs_no_torch(atlas):
    program = (
        "import sys; from headwise.atlas import Atlas; Atlas.open(sys.argv[1]).heads(); "
        "print([name for name in ('torch', 'transformers', 'matplotlib') if name in sys.modules])"
    )
    run = subprocess.run(
        [sys.executable, "-c", program, atlas.path],
        capture_output=True, text=True, check=True, env={"PYTHONPATH": ":".join(path for path in sys.path if path)},
    )  # fmt: skip
    assert run.stdout.strip() == "[]"


def test_a_folder_that_may_not_be_written_can_be_read(atlas):
    """Also without .swap, as after copying only what is visible."""
    import shutil

    shutil.rmtree(atlas.path / ".swap")
    assert (Atlas.open(atlas.path)["profile"].value == 1).all()
    assert not (atlas.path / ".swap").exists()


def test_a_figure_takes_the_options_and_carries_the_words(atlas, monkeypatch):
    import headwise.studies.present as module

    given = {}
    whole = atlas.figure("profile")

    def figure_of(study, dataset, **options):
        given.update(study=study, layers=dataset.sizes["layer"], **options)
        return whole.with_alt("")

    monkeypatch.setattr(module, "figure_of", figure_of)
    figure = atlas.figure("profile", relative=True)
    assert given == {"study": "profile", "layers": 3, "relative": True, "others": {}}  # it reads no other study
    assert figure.alt == atlas.describe("profile").short()


def test_renamed_names_still_work_with_a_warning(atlas):
    with pytest.warns(DeprecationWarning, match="Atlas.place is now Atlas.location"):
        assert atlas.place is atlas.location
    with pytest.warns(DeprecationWarning, match="Atlas.state is now Atlas.fingerprint"):
        assert atlas.state == atlas.fingerprint
    with pytest.warns(DeprecationWarning, match="Atlas.origins is now Atlas.provenances"):
        assert atlas.origins() == atlas.provenances()


def test_missing_metadata_is_not_called_damaged(tmp_path):
    with pytest.raises(AtlasError, match="is missing; give the folder of an atlas, or run the same headwise build"):
        Atlas(tmp_path).studies  # noqa: B018
