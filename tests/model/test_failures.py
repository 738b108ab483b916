"""Errors of the hub that cannot be had offline, made by hand; and what is not understood stays what it is."""

from __future__ import annotations

import pytest
import torch
from huggingface_hub import errors

from headwise.core.errors import DataError, ModelError
from headwise.model.failures import in_words, is_path, unreachable


def hub_error(kind: type[Exception]) -> Exception:
    """Without the HTTP response that its constructor wants."""
    return kind.__new__(kind)


SENTENCES = {
    errors.GatedRepoError: "a/b is gated: accept its terms at https://huggingface.co/a/b, log in with `hf auth login`",
    errors.RevisionNotFoundError: "a/b has no revision 'v9' on the hub",
    errors.RepositoryNotFoundError: "There is no folder and no model 'a/b' on the hub that you may read; check the",
    errors.EntryNotFoundError: "a/b is on the hub but is not a transformers model: it has no config.json or",
    torch.OutOfMemoryError: "a/b does not fit into the device's memory; use dtype='bfloat16', device_map='auto'",
}


@pytest.mark.parametrize("kind", SENTENCES)
def test_sentences(kind: type[Exception]) -> None:
    with pytest.raises(ModelError) as raised, in_words("a/b", "v9"):
        raise OSError("what transformers makes of it") from hub_error(kind)
    assert str(raised.value).startswith(SENTENCES[kind])
    assert not unreachable(raised.value)


def test_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    with (
        pytest.raises(
            ModelError, match=r"a/b is not in the local .* cache \(.*\), and the hub did not answer"
        ) as raised,
        in_words("a/b"),
    ):
        raise OSError("...") from errors.LocalEntryNotFoundError("...")
    assert unreachable(raised.value)


def test_a_missing_package() -> None:
    with (
        pytest.raises(ModelError, match="a/b needs a package that is not installed: pip install sponge"),
        in_words("a/b"),
    ):
        raise ImportError("\npip install sponge\nmore")


def test_own_errors_and_bugs_pass() -> None:
    with pytest.raises(DataError, match="own"), in_words("a/b"):
        raise DataError("own")
    with pytest.raises(ZeroDivisionError), in_words("a/b"):
        raise ZeroDivisionError


def test_what_is_meant_as_a_path() -> None:
    assert all(map(is_path, ["./a", "/a/b", "~/a", "..\\a", "a/b.gguf"]))
    assert not any(map(is_path, ["gpt2", "a/b"]))
