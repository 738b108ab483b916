"""`headwise export`, as typed: HeadVis' folder, and a repository on a hub of the loopback."""

from __future__ import annotations

import json

from headwise.atlas import Atlas


def test_headvis_is_written_and_told(headwise, atlas, tmp_path):
    result = headwise("export", atlas, "--to", "headvis", "-o", tmp_path / "data")
    assert result.code == 0 and result.out.strip() == str(tmp_path / "data")
    assert "no study patterns" in result.err
    config = json.loads((tmp_path / "data/config.json").read_text())
    for layer, head in config["heads"]:
        assert (tmp_path / f"data/heads/L{layer}H{head}.json").exists()
    again = headwise("export", atlas, "--to", "headvis", "-o", tmp_path / "data")
    assert again.code == 2 and "is not an empty folder" in again.err


def test_an_atlas_is_copied_to_a_folder(headwise, atlas, tmp_path):
    result = headwise("export", atlas, "--to", "./copy", cwd=tmp_path)
    assert result.code == 0, result.err
    assert Atlas.open(tmp_path / "copy")["profile"].identical(Atlas.open(atlas)["profile"])
    told = headwise("export", atlas, "--to", "copy").refused()
    assert "Known: ./FOLDER, headvis, hub:OWNER/NAME, s3://BUCKET/NAME." in told
    assert "is the atlas itself; choose another folder with --to." in headwise("export", atlas, "--to", atlas).refused()


def test_slips_are_refused_in_a_sentence(headwise, atlas, tmp_path):
    assert "Did you mean 'headvis'?" in headwise("export", atlas, "--to", "headviz").err
    told = headwise("export", atlas, "--to", "headvis", "--private")
    assert told.code == 2 and "--private has no effect with --to headvis" in told.err
    told = headwise("export", atlas, "--to", "hub:me/atlas", "-o", tmp_path)
    assert told.code == 2 and "-o has no effect" in told.err


def test_a_hub_that_cannot_be_reached_is_said(headwise, atlas):
    told = headwise("export", atlas, "--to", "hub:me/atlas")  # tests have the hub switched off
    assert told.code == 2 and "me/atlas cannot be reached: the hub is switched off (HF_HUB_OFFLINE)" in told.err
    told = headwise("describe", "hf://datasets/me/atlas", "profile")
    assert told.code == 2 and "it is not in the cache" in told.err


def test_an_atlas_is_not_built_on_the_hub(headwise, tiny, texts):
    told = headwise("build", tiny, "--data", texts, "--studies", "profile", "-o", "hf://datasets/me/atlas")
    assert told.code == 2 and "An atlas is made in a folder" in told.err
