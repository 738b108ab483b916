from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from headwise.core.errors import DataError
from headwise.model import Model, load


@pytest.fixture
def model(hf: Any, tokenizer: Any) -> Model:
    return load(hf, tokenizer)


def test_forward_and_generate(model: Model) -> None:
    inputs = model.encode("the cat")
    logits = model(**inputs).logits
    assert not logits.requires_grad
    assert torch.equal(logits, model.hf(**inputs).logits)
    assert model.generate(**inputs, max_new_tokens=2, do_sample=False).shape[1] <= inputs["input_ids"].shape[1] + 2


def test_encode_pads_where_asked(model: Model) -> None:
    right = model.encode(["cat", "cat the cat"])
    assert right["attention_mask"].tolist() == [[1, 0, 0, 0], [1, 1, 1, 1]]
    assert right["input_ids"][0, 1:].tolist() == [0, 0, 0]
    left = model.encode(["cat", "cat the cat"], padding_side="left")
    assert left["attention_mask"].tolist() == [[0, 0, 0, 1], [1, 1, 1, 1]]


def test_encode_takes_one_or_several_chats(model: Model) -> None:
    chat = [{"role": "user", "content": "cat"}]
    assert model.encode(chat)["input_ids"].shape[0] == 1
    assert model.encode([chat, chat])["input_ids"].shape[0] == 2
    assert model.encode([chat, "cat"])["attention_mask"][1].sum() == 1


def test_tokens_of_texts_and_ids(model: Model) -> None:
    assert model.tokens("cat the cat") == ["cat", " the", " ", "cat"]
    assert model.tokens(model.encode("cat the cat")["input_ids"]) == ["cat", " the", " ", "cat"]
    assert model.tokens(model.ids("cat")) == ["cat"]


def test_identity(model: Model) -> None:
    identity = model.identity()
    assert identity == model.identity()
    assert (identity["layers"], identity["heads"], identity["kv_heads"]) == (3, 4, 2)
    assert (identity["dtype"], identity["device"], identity["revision"]) == ("float32", "cpu", None)
    assert len(identity["digest"]) == len(identity["tokenizer"]) == 32
    assert repr(model) == f"<Model {model.id}: 3 layers x 4 heads, float32 on cpu>"


def test_text_without_a_tokenizer_is_refused(hf: Any) -> None:
    bare = load(hf)
    assert bare.tokenizer is None
    assert bare.identity()["tokenizer"] is None
    assert bare(input_ids=torch.tensor([[3, 4]])).logits.shape == (1, 2, 300)
    with pytest.raises(DataError, match=r"cannot encode text, because it was given without a tokenizer; pass one with"):
        bare.encode("cat")


def test_texts_that_cannot_be_shown(model: Model, hf: Any, make_tokenizer: Callable[..., Any]) -> None:
    with pytest.raises(DataError, match="An empty text has no tokens"):
        model.encode("")
    with pytest.raises(DataError, match="the list is empty"):
        model.encode([])
    with pytest.raises(
        DataError, match=r"A text of 65 tokens is longer than the context of .* \(64 tokens\); shorten it"
    ):
        model.encode("cat" * 65)
    other = make_tokenizer()
    other.add_tokens([f"<{i}>" for i in range(100)])
    with pytest.raises(DataError, match=r"gave the id 365, but .* embeds only 300 tokens; the tokenizer is not this"):
        load(hf, other).encode("<99>")
