"""An atlas on the hub: pushed by one commit, opened again bit for bit, refused in words. The hub is on the loopback."""

from __future__ import annotations

import shutil
from pathlib import Path

import huggingface_hub
import pytest
import xarray as xr
from loopback_hub import TOKEN, Hub, commit_of
from synthetic.origin import provenance
from synthetic.profile import profile_dataset

from headwise.atlas import Atlas
from headwise.atlas.cards import hub_readme
from headwise.atlas.hub import HubAddress, committed_files
from headwise.core.errors import AtlasError

PLACE = "hf://datasets/me/atlas"


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A hub of one's own, with a cache of its own, and somebody logged in."""
    found = Hub()
    huggingface_hub.HfApi()  # so that its parts are there to be changed
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", found.url)
    template = found.url + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(huggingface_hub.constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_DISABLE_PROGRESS_BARS", True)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    yield found
    found.close()


@pytest.fixture(scope="session")
def pattern(tmp_path_factory):
    """An atlas with a study of Headwise and one of somebody's own."""
    made = Atlas.create(tmp_path_factory.mktemp("hub") / "atlas")
    made.add("profile", profile_dataset(3, 2, texts=4, randoms=2).assign_attrs(record='["value"]'))
    toy = xr.Dataset({"value": ("layer", [1.0, 2.0])}, {"layer": [0, 1]})
    made.add("toy", toy.assign_attrs(provenance=provenance("toy", 2, 2, data="none", size=0)))
    return made


@pytest.fixture
def atlas(pattern, tmp_path):
    shutil.copytree(pattern.path, tmp_path / "atlas")
    return Atlas.open(tmp_path / "atlas")


def test_an_atlas_at_a_url_is_pushed_by_way_of_a_copy(hub, atlas):
    atlas.copy_to("memory://hub/atlas").push_to_hub("me/atlas")
    xr.testing.assert_identical(Atlas.open(PLACE)["profile"], atlas["profile"])


def test_what_is_pushed_comes_back_bit_for_bit(hub, atlas):
    address = atlas.push_to_hub("me/atlas", private=True)
    assert address == f"{hub.url}/datasets/me/atlas" and hub.private == {"me/atlas"}
    again = Atlas.open(PLACE)
    assert again.studies == ["profile", "toy"]
    for study in atlas.studies:
        xr.testing.assert_identical(again[study], atlas[study])


def test_plain_xarray_opens_what_was_downloaded(hub, atlas):
    atlas.push_to_hub("me/atlas")
    folder = huggingface_hub.snapshot_download("me/atlas", repo_type="dataset")
    tree = xr.open_datatree(folder, engine="zarr")
    assert float(tree["profile"]["value"].sum()) == pytest.approx(float(atlas["profile"]["value"].sum()))


def test_only_what_is_finished_goes_up(hub, atlas):
    for half_done in (".swap/circuits.new/zarr.json", ".shards/0001.zip"):
        path = atlas.path / half_done
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}")
    (atlas.path / "detector.json").write_text("{}")
    (atlas.path / "notes.txt").write_text("mine")
    atlas.push_to_hub("me/atlas")
    files = hub.repos["me/atlas"]["main"]
    assert {name.split("/")[0] for name in files} == {"README.md", "zarr.json", "profile", "toy", "detector.json"}
    assert len(hub.messages) == 1 and "profile, toy" in hub.messages[0]


def test_a_study_that_is_gone_is_deleted_in_the_same_commit(hub, atlas, tmp_path):
    atlas.push_to_hub("me/atlas")
    smaller = Atlas.create(tmp_path / "smaller")
    smaller.add("profile", atlas["profile"])
    smaller.push_to_hub("me/atlas")
    assert Atlas.open(PLACE).studies == ["profile"] and len(hub.messages) == 2


def test_a_branch_is_pushed_to_and_opened_by_its_name(hub, atlas):
    atlas.push_to_hub("me/atlas", revision="v2")
    assert hub.repos["me/atlas"]["main"] == {}
    assert Atlas.open(Path(f"{PLACE}@v2")).studies == ["profile", "toy"]  # a Path makes one slash of two


def test_the_card_says_what_was_found_and_how_to_open_it(hub, atlas):
    atlas.push_to_hub("me/atlas")
    card = hub.repos["me/atlas"]["main"]["README.md"].decode()
    metadata = huggingface_hub.DatasetCard(card).data.to_dict()
    assert "headwise" in metadata["tags"] and metadata["viewer"] is False
    assert atlas.describe("profile").short() in card
    assert 'Atlas.open("hf://datasets/me/atlas")' in card and 'engine="zarr"' in card
    assert atlas.provenance("profile").model["digest"] in card


def test_the_card_draws_a_study_that_has_a_figure(atlas):
    origins = {"answers": atlas.provenance("toy"), "profile": atlas.provenance("profile")}
    card = hub_readme("me/atlas", origins, {"answers": "", "profile": "found |\nthis"})
    assert (
        'atlas.figure("profile")' in card and "- **profile**: found | this" in card and "- **answers**: a table" in card
    )


def test_a_second_opening_asks_for_no_file(hub, atlas):
    atlas.push_to_hub("me/atlas")
    Atlas.open(PLACE)
    hub.given.clear()
    Atlas.open(PLACE)
    assert hub.given == []


def test_a_file_damaged_in_the_cache_is_fetched_again(hub, atlas):
    atlas.push_to_hub("me/atlas")
    folder = Atlas.open(PLACE).path
    chunk = next(path for path in sorted((folder / "profile/value/c").rglob("*")) if path.is_file()).resolve()
    chunk.write_bytes(chunk.read_bytes()[:-1] + b"?")
    xr.testing.assert_identical(Atlas.open(PLACE)["profile"], atlas["profile"])


def test_damage_on_the_hub_is_refused(hub, atlas):
    atlas.push_to_hub("me/atlas")
    files = hub.repos["me/atlas"]["main"]
    name = next(name for name in files if name.startswith("profile/value/c"))
    files[name] = files[name][:-1] + b"?"
    hub.repos["me/atlas"][commit_of(files)] = files
    with pytest.raises(AtlasError, match=r"me/atlas is damaged on the hub .*'value'.*ask its owner"):
        Atlas.open(PLACE)


def test_a_damaged_atlas_is_not_pushed(hub, atlas):
    chunk = next(path for path in (atlas.path / "profile/value/c").rglob("*") if path.is_file())
    chunk.write_bytes(b"?")
    with pytest.raises(AtlasError, match="is damaged"):
        atlas.push_to_hub("me/atlas")
    assert hub.repos == {}


def test_a_repository_that_is_no_atlas_is_refused(hub):
    hub.repos["me/atlas"] = {"main": {"data.csv": b"a,b"}}
    hub.repos["me/atlas"][commit_of({"data.csv": b"a,b"})] = {"data.csv": b"a,b"}
    with pytest.raises(AtlasError, match="is not an atlas"):
        Atlas.open(PLACE)


def test_refusals_are_sentences(hub, atlas, monkeypatch):
    with pytest.raises(AtlasError, match=r"There is no dataset me/nothing on the hub"):
        Atlas.open("hf://datasets/me/nothing")
    atlas.push_to_hub("me/atlas")
    with pytest.raises(AtlasError, match="no revision 'v9'"):
        Atlas.open(f"{PLACE}@v9")
    with pytest.raises(AtlasError, match="write it as hf://datasets/OWNER/NAME"):
        Atlas.open("hf://me/atlas")
    with pytest.raises(AtlasError, match="hf auth login"):
        atlas.push_to_hub("me/other", token="hf_wrong")
    with pytest.raises(AtlasError, match="cannot be a name on the hub"):
        atlas.push_to_hub("me/at/las")


def test_no_network_is_reported_and_the_cache_serves(hub, atlas, tmp_path, monkeypatch):
    atlas.push_to_hub("me/atlas")
    Atlas.open(PLACE)
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", "http://127.0.0.1:9")  # where nobody listens
    assert Atlas.open(PLACE).studies == ["profile", "toy"]
    shutil.rmtree(tmp_path / "cache")
    with pytest.raises(AtlasError, match="the hub did not answer"):
        Atlas.open(PLACE)
    with pytest.raises(AtlasError, match="the hub did not answer"):
        atlas.push_to_hub("me/atlas")


def test_an_address_is_read_as_written():
    assert str(HubAddress.parse("hf://datasets/a/b@v1")) == "hf://datasets/a/b@v1"
    assert HubAddress.parse("some/folder") is None


def test_offline_mode_is_reported(hub, monkeypatch):
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(AtlasError, match=r"switched off \(HF_HUB_OFFLINE\), and it is not in the cache"):
        Atlas.open("hf://datasets/me/nowhere")


def test_committed_files_are_those_of_the_studies(atlas):
    names = {key.split("/")[0] for key in committed_files(atlas.path)}
    assert names == {"zarr.json", "profile", "toy"}
