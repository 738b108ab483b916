"""A loaded model: the ``transformers`` model, its tokenizer, its card, and who it is.

It adds nothing to the model and changes nothing in it; it only keeps together what a measurement needs. Its weights are
the checkpoint's: nothing is folded, centred or merged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from headwise.errors import DataError
from headwise.markup import Html, card, facts
from headwise.model.card import ModelCard
from headwise.model.digest import tokenizer_digest, weights_digest
from headwise.model.tokens import Chat, is_chat, readable, token_ids

__all__ = ["Model"]


@dataclass(eq=False)
class Model:
    """What :func:`headwise.model.load` returns."""

    hf: Any  # the transformers model, in eval mode
    tokenizer: Any | None
    card: ModelCard
    id: str
    revision: str | None = None  # a commit of the hub, or "gguf-" and the file's digest
    adapter: str | None = None  # the adapter on top, if one was asked for
    no_tokenizer: str = "this model was given without a tokenizer"  # why, where it is None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """One forward pass without gradients, as all measuring is; ``model.hf(...)`` keeps them."""
        with torch.no_grad():
            return self.hf(*args, **kwargs)

    def generate(self, *args: Any, **kwargs: Any) -> Any:
        """``transformers``' own ``generate``."""
        return self.hf.generate(*args, **kwargs)

    @property
    def device(self) -> torch.device:
        """Where inputs go."""
        device = next(self.hf.get_input_embeddings().parameters()).device
        return torch.device("cpu") if device.type == "meta" else device  # accelerate moves inputs of offloaded parts

    @property
    def dtype(self) -> torch.dtype:
        return self.hf.dtype

    def encode(
        self,
        items: str | Chat | Sequence[str] | Sequence[Chat],
        *,
        generation_prompt: bool | None = None,
        padding_side: str = "right",
    ) -> dict[str, Tensor]:
        """One text or chat, or a list of them, as ``input_ids`` and ``attention_mask`` on the model's device.

        Shorter rows are padded (on the right for a forward pass; ask for ``"left"`` to generate). A chat ends with the
        assistant's turn opened unless the assistant spoke last. Nothing is truncated: what is too long is refused.
        """
        several: list[Any] = [items] if isinstance(items, str) or is_chat(items) else list(items)
        rows = [self.ids(item, generation_prompt=generation_prompt) for item in several]
        if not rows:
            raise DataError("There is no text to encode: the list is empty.")
        width = max(len(row) for row in rows)
        input_ids = torch.full((len(rows), width), self.pad_id)
        attention_mask = torch.zeros_like(input_ids)
        for i, row in enumerate(rows):
            place = slice(width - len(row), width) if padding_side == "left" else slice(0, len(row))
            input_ids[i, place] = torch.tensor(row)
            attention_mask[i, place] = 1
        return {"input_ids": input_ids.to(self.device), "attention_mask": attention_mask.to(self.device)}

    def ids(self, item: str | Chat, *, generation_prompt: bool | None = None, limit: int | None = None) -> list[int]:
        """The token ids of one text or chat, with one first token at most; with a limit, the first so many."""
        ids = token_ids(self._tokenizer(), item, generation_prompt=generation_prompt)[:limit]
        if not ids:
            raise DataError("An empty text has no tokens, so there is nothing to show the model.")
        if max(ids) >= self.card.vocabulary_size:
            raise DataError(
                f"The tokenizer gave the id {max(ids)}, but {self.id} embeds only {self.card.vocabulary_size} tokens; "
                "the tokenizer is not this model's."
            )
        most = self.card.max_positions
        if most is not None and len(ids) > most:
            raise DataError(f"A text of {len(ids)} tokens is longer than the {most} that {self.id} takes; shorten it.")
        return ids

    def tokens(self, item: str | Chat | Sequence[int] | Tensor) -> list[str]:
        """One readable string per token of a text, a chat, or a row of ids."""
        if isinstance(item, Tensor):
            item = item.flatten().tolist()
        if isinstance(item, str) or is_chat(item):
            item = self.ids(item)  # type: ignore[arg-type]
        return readable(self._tokenizer(), item)  # type: ignore[arg-type]

    @property
    def pad_id(self) -> int:
        """What fills the end of a short row; its value never matters, since it is masked."""
        tokenizer = self._tokenizer()
        candidates = (tokenizer.pad_token_id, tokenizer.eos_token_id)
        return next((i for i in candidates if i is not None and i < self.card.vocabulary_size), 0)

    def identity(self) -> dict[str, Any]:
        """Who this model is, for provenance. Reads a sample of the weights as they are now."""
        return {
            "id": self.id,
            "revision": self.revision,
            "adapter": self.adapter,
            "digest": weights_digest(self.hf),
            "tokenizer": tokenizer_digest(self.tokenizer),
            "layers": self.card.layers,
            "heads": self.card.heads,
            "kv_heads": self.card.kv_heads,
            "dtype": str(self.dtype).removeprefix("torch."),
            "device": self.device.type,
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
                f"{self.id} cannot be shown text, because {self.no_tokenizer}; give one with load(model, tokenizer), "
                "or call the model with token ids."
            )
        return self.tokenizer
