"""Every verb, on an atlas in a bucket: built there, read there, and what goes wrong told in a sentence."""

from __future__ import annotations

import json
import shutil

import pytest
import xarray as xr
from answered import rows

from headwise.atlas import Atlas

URL = "s3://bucket/models/tiny"


@pytest.fixture(scope="module")
def command(tiny, texts):
    return ("build", tiny, "--studies", "profile", "--data", texts)


@pytest.fixture(scope="module")
def folder(server, headwise, command, tmp_path_factory):
    """Where the command was given; the atlas is at URL."""
    folder = tmp_path_factory.mktemp("here")
    result = headwise(*command, "-o", URL, cwd=folder)
    assert result.code == 0, result.err
    assert f"The atlas is in {URL}: profile." in result.out
    assert "The report is tiny-report.html" in result.out
    return folder


@pytest.fixture(scope="module")
def asked(server, detected):
    """A copy of an atlas with answers and a detector."""
    return str(Atlas.open(detected).copy_to("s3://bucket/asked").location)


def test_it_is_the_atlas_that_a_folder_would_hold(folder, atlas):
    local, remote = Atlas.open(atlas), Atlas.open(URL)
    assert local.studies == remote.studies
    for study in local.studies:
        one, other = local[study], remote[study]
        assert local.provenance(study).identity() == remote.provenance(study).identity()
        xr.testing.assert_identical(*(each.assign_attrs(provenance="") for each in (one, other)))
    assert remote.location.keys(".shards") == []


def test_what_is_written_beside_goes_to_the_current_folder(folder):
    assert sorted(entry.name for entry in folder.iterdir()) == ["tiny-figures", "tiny-report.html"]
    assert (folder / "tiny-figures" / "profile.pdf").exists()


def test_the_same_command_again_measures_nothing(folder, headwise, command, monkeypatch):
    monkeypatch.setattr("headwise.cli.build.write_figures", lambda atlas, where: [])
    monkeypatch.setattr("headwise.web.report.write", lambda atlas, where: where)
    before = Atlas.open(URL).fingerprint
    result = headwise(*command, "-o", URL, "--json", cwd=folder)
    assert result.code == 0, result.err
    assert json.loads(result.out)["atlas"] == URL
    assert Atlas.open(URL).fingerprint == before


READING = {
    "show": ("show", URL, "profile", "-o", "map.svg"),
    "describe": ("describe", URL, "profile"),
    "heads": ("heads", URL, "--sort", "profile.induction", "-n", "2"),
    "head": ("head", URL, "L0H0"),
    "compare": ("compare", URL, URL),
    "report": ("report", URL),
    "headvis": ("export", URL, "--to", "headvis", "-o", "headvis"),
}


@pytest.mark.parametrize("verb", READING)
def test_reading(folder, headwise, tmp_path, verb):
    result = headwise(*READING[verb], cwd=tmp_path)
    assert result.code == 0, result.err
    assert result.out.strip()
    assert "s3:/b" not in result.out
    made = {"show": ["map.svg"], "report": ["tiny-report.html"], "headvis": ["headvis"]}
    assert sorted(entry.name for entry in tmp_path.iterdir()) == made.get(verb, [])


def test_answers_and_detecting(asked, headwise, tiny):
    result = headwise("answers", asked, "-n", "2")
    assert result.code == 0 and "2 of 90 shown" in result.out, result.err
    one = rows(1)[0]
    result = headwise("detect", asked, "--ask", one["question"], "--answer", one["response"], "--model", tiny)
    assert result.code == 0, result.err
    assert 0 <= json.loads(result.out)["probability"] <= 1


def test_a_detector_that_is_lost_or_damaged(folder, asked, headwise, tiny):
    place = Atlas.open(asked).location
    whole = place.read("detector.safetensors")
    try:
        place.write("detector.safetensors", whole[:-8])
        result = headwise("detect", asked, "--ask", "who ?", "--answer", "nobody", "--model", tiny)
        assert f"The detector file {asked}/detector.safetensors is damaged" in result.refused()
    finally:
        place.write("detector.safetensors", whole)
    result = headwise("detect", URL, "--ask", "who ?", "--answer", "nobody", "--model", tiny)
    assert f"{URL} holds no detector; build one with" in result.refused()


def test_serving(folder):
    testing = pytest.importorskip("fastapi.testclient")
    from headwise.server import create_app

    with testing.TestClient(create_app([URL]), base_url="http://127.0.0.1") as client:
        opening = client.get("/api/tiny/atlas")
        assert opening.status_code == 200 and opening.json()["name"] == "tiny"
        state = opening.headers.get("etag")
        Atlas.open(URL).add("profile", Atlas.open(URL)["profile"])
        assert client.get("/api/tiny/atlas").headers.get("etag") != state  # it is read anew when it was written anew


def test_copying_there_and_back(folder, headwise, tmp_path):
    result = headwise("export", URL, "--to", f"file://{tmp_path / 'copy'}")
    assert result.code == 0, result.err
    xr.testing.assert_identical(Atlas.open(tmp_path / "copy")["profile"], Atlas.open(URL)["profile"])
    result = headwise("export", tmp_path / "copy", "--to", "s3://bucket/again")
    assert (result.code, result.out.strip()) == (0, "s3://bucket/again")
    shutil.rmtree(tmp_path / "copy")
    assert Atlas.open("s3://bucket/again").studies == Atlas.open(URL).studies
    assert "-o has no effect" in headwise("export", URL, "--to", "s3://bucket/again", "-o", "x").refused()


def test_slips_are_told_in_a_sentence(folder, headwise, command, monkeypatch):
    assert (
        "has no figure; read it with headwise answers s3://bucket/models/tiny"
        in headwise("show", URL, "answers").refused()
    )
    assert "There is no atlas at s3://bucket/none" in headwise("describe", "s3://bucket/none", "profile").refused()
    assert "There is no bucket 'none'" in headwise("heads", "s3://none/atlas").refused()
    assert "There is no bucket 'none'" in headwise(*command, "-o", "s3://none/atlas").refused()
    assert (
        "is not a storage location that Headwise knows"
        in headwise("export", URL, "--to", "ftp://bucket/atlas").refused()
    )
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    assert "cannot be reached: nothing answers there" in headwise(*command, "-o", "s3://bucket/new").refused()


def test_credentials_that_are_missing(folder, headwise, command, monkeypatch):
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_METADATA_ENDPOINT", "http://127.0.0.1:9/169.254.169.254")
    assert (
        "No credentials were found for s3://bucket/new; set AWS_ACC"
        in headwise(*command, "-o", "s3://bucket/new").refused()
    )
