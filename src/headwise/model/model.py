"""A loaded model: the ``transformers`` model with its tokenizer, its card and its identity.

The model itself is unchanged. Its weights are the checkpoint's: nothing is folded, centred or merged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from headwise.core.errors import DataError
from headwise.core.markup import Html, card, facts
from headwise.model.card import ModelCard
from headwise.model.digest import tokenizer_digest, weights_digest
from headwise.model.offload import execution_device
from headwise.model.tokens import Chat, is_chat, readable_tokens, token_ids


@dataclass(eq=False)
class Model:
    """A model ready for measuring, as `headwise.load` returns it; call it like the ``transformers`` model.

    Examples:
        >>> model
        <Model planted: 3 layers x 6 heads, float32 on cpu>
        >>> inputs = model.encode(["the old river", "the house by the river"])
        >>> inputs["attention_mask"]
        tensor([[1, 1, 1, 1, 0, 0],
                [1, 1, 1, 1, 1, 1]])
        >>> model(**inputs).logits.shape  # without gradients
        torch.Size([2, 6, 200])
    """

    hf: Any  # the transformers model, in eval mode
    tokenizer: Any | None  # the transformers tokenizer, if there is one
    card: ModelCard  # layers, heads, widths
    id: str  # the hub id, folder or name it was loaded by
    revision: str | None = None  # a commit of the hub, or "gguf-" and the file's digest
    adapter: str | None = None  # the adapter, if there is one
    no_tokenizer: str = "this model was given without a tokenizer"  # the reason, if it is None
    placement: dict[str, Any] | None = None  # `load`'s arguments for several devices, if given
    dequantised_from: str | None = None  # what its weights were quantised as in the file, such as "Q4_1 GGUF"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """One forward pass without gradients; ``model.hf(...)`` computes them."""
        with torch.no_grad():
            return self.hf(*args, **kwargs)

    def generate(self, *args: Any, **kwargs: Any) -> Any:
        """``generate`` of ``transformers``; instruments and interventions work in it as well.

        Args:
            *args: passed to ``generate``.
            **kwargs: passed to ``generate``; pad on the left, as ``model.encode(texts, padding_side="left")`` does.

        Returns:
            Token ids, prompts included.

        Examples:
            >>> prompt = model.encode("the old river", padding_side="left")
            >>> model.generate(**prompt, max_new_tokens=4, do_sample=False).shape
            torch.Size([1, 8])
        """
        return self.hf.generate(*args, **kwargs)

    @property
    def device(self) -> torch.device:
        """The device for inputs."""
        return execution_device(self.hf)

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of its weights."""
        return self.hf.dtype

    @property
    def load_arguments(self) -> dict[str, Any]:
        """Arguments of `load` that place another model like this one, in the same dtype."""
        return {"dtype": self.dtype, **(self.placement or {"device": self.device})}

    def encode(
        self,
        items: str | Chat | Sequence[str] | Sequence[Chat],
        *,
        generation_prompt: bool | None = None,
        padding_side: str = "right",
    ) -> dict[str, Tensor]:
        """One text or chat, or a list of them, as ``input_ids`` and ``attention_mask`` on the model's device.

        Texts longer than the context are refused, not truncated.

        Args:
            items: a text, a chat (a list of ``{"role": ..., "content": ...}``), or a list of either.
            generation_prompt: whether a chat ends with the beginning of the assistant's turn; by default unless the
                last turn is the assistant's.
            padding_side: ``"right"`` for a forward pass, ``"left"`` to generate.

        Returns:
            The model's inputs: ``model(**model.encode(text))``.

        Examples:
            >>> model.encode("the old river")["input_ids"]
            tensor([[ 1, 20, 30, 31]])
        """
        several: list[Any] = [items] if isinstance(items, str) or is_chat(items) else list(items)
        rows = [self.ids(item, generation_prompt=generation_prompt) for item in several]
        if not rows:
            raise DataError("There is no text to encode: the list is empty.")
        width = max(len(row) for row in rows)
        input_ids = torch.full((len(rows), width), self.pad_id)
        attention_mask = torch.zeros_like(input_ids)
        for i, row in enumerate(rows):
            own = slice(width - len(row), width) if padding_side == "left" else slice(0, len(row))
            input_ids[i, own] = torch.tensor(row)
            attention_mask[i, own] = 1
        return {"input_ids": input_ids.to(self.device), "attention_mask": attention_mask.to(self.device)}

    def ids(self, item: str | Chat, *, generation_prompt: bool | None = None, limit: int | None = None) -> list[int]:
        """The token ids of one text or chat, with at most one BOS token.

        Args:
            item: a text or a chat.
            generation_prompt: as for `encode`.
            limit: truncate to this many.

        Returns:
            The ids.

        Examples:
            >>> model.ids("the old river", limit=2)
            [1, 20]
        """
        ids = token_ids(self._tokenizer(), item, generation_prompt=generation_prompt)[:limit]
        if not ids:
            raise DataError("An empty text has no tokens; give a text with at least one.")
        if max(ids) >= self.card.vocabulary_size:
            raise DataError(
                f"The tokenizer gave the id {max(ids)}, but {self.id} embeds only {self.card.vocabulary_size} tokens; "
                "the tokenizer is not this model's."
            )
        longest = self.card.max_positions
        if longest is not None and len(ids) > longest:
            raise DataError(
                f"A text of {len(ids)} tokens is longer than the context of {self.id} ({longest} tokens); shorten it."
            )
        return ids

    def tokens(self, item: str | Chat | Sequence[int] | Tensor) -> list[str]:
        """One readable_tokens string per token.

        Args:
            item: a text, a chat, or a sequence of token ids.

        Returns:
            One string per token, BOS included.

        Examples:
            >>> model.tokens("the old river")
            ['<s>', 'the', 'old', 'river']
        """
        if isinstance(item, Tensor):
            item = item.flatten().tolist()
        if isinstance(item, str) or is_chat(item):
            item = self.ids(item)  # type: ignore[arg-type]
        return readable_tokens(self._tokenizer(), item)  # type: ignore[arg-type]

    @property
    def pad_id(self) -> int:
        """The padding id; its value has no effect, because it is masked."""
        tokenizer = self._tokenizer()
        candidates = (tokenizer.pad_token_id, tokenizer.eos_token_id)
        return next((i for i in candidates if i is not None and i < self.card.vocabulary_size), 0)

    def identity(self) -> dict[str, Any]:
        """The model's identity for provenance; reads a sample of its current weights.

        Returns:
            Id, revision, adapter, digests of weights and tokenizer, numbers of layers and heads, dtype, device, and what
            the weights were de-quantised from.

        Examples:
            >>> who = model.identity()
            >>> who["id"], who["layers"], who["heads"], len(who["digest"])
            ('planted', 3, 6, 32)
        """
        return {
            "id": self.id,
            "revision": self.revision,
            "adapter": self.adapter,
            "digest": weights_digest(self.hf),
            "tokenizer": tokenizer_digest(self.tokenizer),
            "layers": self.card.layers,
            "heads": self.card.heads,
            "kv_heads": self.card.kv_heads,
            "parameters": self.card.parameters_or_none,
            "dtype": str(self.dtype).removeprefix("torch."),
            "device": self.device.type,
            **({} if self.dequantised_from is None else {"dequantised_from": self.dequantised_from}),
        }

    def __repr__(self) -> str:
        dtype = str(self.dtype).removeprefix("torch.")
        return f"<Model {self.id}: {self.card.layers} layers x {self.card.heads} heads, {dtype} on {self.device}>"

    def _repr_html_(self) -> str:
        dtype = str(self.dtype).removeprefix("torch.")
        here = facts(
            {"numbers": f"{dtype} on {self.device}", "revision": self.revision, "adapter": self.adapter}
            | ({} if self.tokenizer is not None else {"tokenizer": self.no_tokenizer})
        )
        return card("Model", Html(self.card._repr_html_()), here)

    def _tokenizer(self) -> Any:
        if self.tokenizer is None:
            raise DataError(
                f"{self.id} cannot encode text, because {self.no_tokenizer}; pass one with load(model, tokenizer), or "
                "call the model with token ids."
            )
        return self.tokenizer
