"""Errors of the hub that cannot be had offline, made by hand; and what is not understood stays what it is."""

from __future__ import annotations

import pytest
import torch
from huggingface_hub import errors

from headwise.core.errors import DataError, ModelError
from headwise.model.library_calls import is_unreachable, looks_like_path, translate_load_errors


def hub_error(kind: type[Exception]) -> Exception:
    """Without the HTTP response that its constructor wants."""
    return kind.__new__(kind)


SENTENCES = {
    errors.GatedRepoError: "a/b is gated: accept its terms at https://huggingface.co/a/b, log in with `hf auth login`",
    errors.RevisionNotFoundError: "a/b has no revision 'v9' on the hub",
    errors.RepositoryNotFoundError: "There is no folder and no accessible model 'a/b' on the hub; check the",
    errors.EntryNotFoundError: "a/b is on the hub but is not a transformers model: it has no config.json or",
    torch.OutOfMemoryError: "a/b does not fit into the device's memory; use dtype='bfloat16', device_map='auto'",
}


@pytest.mark.parametrize("kind", SENTENCES)
def test_sentences(kind: type[Exception]) -> None:
    with pytest.raises(ModelError) as raised, translate_load_errors("a/b", "v9"):
        raise OSError("what transformers makes of it") from hub_error(kind)
    assert str(raised.value).startswith(SENTENCES[kind])
    assert not is_unreachable(raised.value)


def test_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    with (
        pytest.raises(
            ModelError, match=r"a/b is not in the local .* cache \(.*\), and the hub did not answer"
        ) as raised,
        translate_load_errors("a/b"),
    ):
        raise OSError("...") from errors.LocalEntryNotFoundError("...")
    assert is_unreachable(raised.value)


def test_a_missing_package() -> None:
    with (
        pytest.raises(ModelError, match="a/b needs a package that is not installed: pip install sponge"),
        translate_load_errors("a/b"),
    ):
        raise ImportError("\npip install sponge\nmore")


def test_own_errors_pass_and_all_others_are_about_the_files() -> None:
    with pytest.raises(DataError, match="own"), translate_load_errors("a/b"):
        raise DataError("own")
    for error, why in ((ZeroDivisionError(), "a size is zero"), (KeyError("rope"), "'rope' is missing")):
        sentence = rf"^transformers could not load a/b \({why}\); correct or copy its files again"
        with pytest.raises(ModelError, match=sentence), translate_load_errors("a/b"):
            raise error


def test_what_is_meant_as_a_path() -> None:
    assert all(map(looks_like_path, ["./a", "/a/b", "~/a", "..\\a", "a/b.gguf"]))
    assert not any(map(looks_like_path, ["gpt2", "a/b"]))
