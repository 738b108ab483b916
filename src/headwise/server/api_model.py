"""The model behind the API: loading it, and turning requests into prompts that fit.

    host = ApiHost(open_model, jobs)      # loaded in the model's thread; requests meanwhile get 503
    host.ready().read(messages, sampling, limits)

A prompt over the limit is refused before it is tokenised where its characters alone say so. A chat goes through the model's own
chat template, which may refuse it; a model without one takes texts only.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from jinja2 import TemplateError

from headwise.core.cancellation import CancelToken
from headwise.core.errors import DataError, HeadwiseError, reason
from headwise.server.batching import MAX_BATCH, MAX_WAITING_REQUESTS, Watcher
from headwise.server.model_host import LOADING_SECONDS, JobQueue, ModelNotReadyError
from headwise.server.openai_errors import ApiError
from headwise.server.openai_requests import SamplingParameters

if TYPE_CHECKING:
    from headwise.watching import Prompt

__all__ = ["ApiHost", "ApiLimits", "ApiModel", "TextOrChat"]

log = logging.getLogger("headwise.server")
MAX_CHARACTERS_PER_TOKEN = 32  # on average; longer texts are refused before tokenising
MIN_BODY_BYTES = 256 * 1024
BODY_BYTES_PER_TOKEN = 64
TextOrChat = str | Sequence[int] | Sequence[dict[str, str]]


@dataclass(frozen=True)
class ApiLimits:
    """What one request, and all together, may take."""

    prompt_tokens: int = 4096  # of one prompt
    new_tokens: int = 1024  # of one answer
    batch: int = MAX_BATCH  # answers generated at once
    waiting: int = MAX_WAITING_REQUESTS  # answers in the queue; more are refused with 429
    seconds: float = 300.0  # from the request to the end of its answer

    @property
    def body_bytes(self) -> int:
        """The largest body: room for the prompt, with every character escaped."""
        return max(MIN_BODY_BYTES, BODY_BYTES_PER_TOKEN * self.prompt_tokens)


class TokenisingModel(Protocol):
    """The interface of `headwise.model.Model` that is used here."""

    @property
    def ids(self) -> Callable[..., list[int]]: ...
    @property
    def tokenizer(self) -> Any: ...
    @property
    def card(self) -> Any: ...


@dataclass(frozen=True)
class ApiModel:
    """A loaded model under observation."""

    name: str  # public
    model: TokenisingModel
    watch: Watcher
    make_prompt: Callable[..., Prompt]  # headwise.watching.Prompt, which this module does not import: it needs no torch
    about: Mapping[str, str | float | None] = field(default_factory=dict)  # what is watched, for /v1/models
    _tokenising: Any = field(default_factory=threading.Lock, repr=False, compare=False)

    def read(self, item: TextOrChat, sampling: SamplingParameters, limits: ApiLimits, *, param: str) -> list[Prompt]:
        """`sampling.n` prompts of a text, of token ids or of a chat; ApiError where it does not fit."""
        context = self.model.card.max_positions
        most = limits.prompt_tokens if context is None else min(limits.prompt_tokens, context - 1)
        too_long = ApiError(
            f"the prompt has more than {most:,} tokens, which is the limit; shorten it",
            param=param, code="context_length_exceeded",
        )  # fmt: skip
        if _characters(item) > most * MAX_CHARACTERS_PER_TOKEN:
            raise too_long
        ids = self._ids(item, most + 1, param)
        if len(ids) > most:
            raise too_long
        wanted, room = sampling.max_new_tokens, limits.new_tokens if context is None else context - len(ids)
        if wanted is not None and wanted > limits.new_tokens:
            raise ApiError(f"max_tokens may be at most {limits.new_tokens:,} here, not {wanted:,}", param="max_tokens")
        if wanted is not None and wanted > room:
            raise ApiError(
                f"the prompt has {len(ids):,} tokens, and with {wanted:,} more it does not fit into the model's context of "
                f"{context:,} tokens; shorten it, or lower max_tokens",
                param=param, code="context_length_exceeded",
            )  # fmt: skip
        return [
            self.make_prompt(
                ids=tuple(ids), max_new_tokens=wanted or min(room, limits.new_tokens), temperature=sampling.temperature,
                top_p=sampling.top_p, seed=(sampling.seed + number) % 2**63, stop=sampling.stop,
            )
            for number in range(sampling.n)
        ]  # fmt: skip

    def _ids(self, item: TextOrChat, limit: int, param: str) -> list[int]:
        if not isinstance(item, str) and item and isinstance(item[0], int):
            return self._given_ids([one for one in item if isinstance(one, int)], param)
        if not isinstance(item, str) and not getattr(self.model.tokenizer, "chat_template", None):
            raise ApiError(
                f"{self.name} has no chat template; send the text to /v1/completions",
                param=param,
                code="no_chat_template",
            )
        try:
            with self._tokenising:  # a tokenizer may refuse two threads at once
                return self.model.ids(item, limit=limit, generation_prompt=None if isinstance(item, str) else True)
        except TemplateError as error:
            raise ApiError(f"the model's chat template refuses this chat: {reason(error)}", param=param) from error
        except DataError as error:
            raise ApiError(str(error), param=param) from error

    def _given_ids(self, ids: list[int], param: str) -> list[int]:
        size = self.model.card.vocabulary_size
        wrong = next((one for one in ids if not 0 <= one < size), None)
        if wrong is not None:
            raise ApiError(f"there is no token {wrong}; the model has tokens 0 to {size - 1:,}", param=param)
        return ids


class ApiHost:
    """The model of the API, once it is loaded."""

    def __init__(self, name: str, open_model: Callable[[], ApiModel], jobs: JobQueue):
        self.name = name
        self._open = open_model
        self._model: ApiModel | None = None
        self._job = jobs.submit(self._load, seconds=LOADING_SECONDS, always=True)

    @property
    def state(self) -> str:
        """`loading`, `ready` or `failed`."""
        if self._model is not None:
            return "ready"
        return "failed" if self._job.status.event == "failed" else "loading"

    def ready(self) -> ApiModel:
        """The model; ModelNotReadyError where there is none (yet)."""
        if self._model is None:
            why = (
                self._job.status.error if self.state == "failed" else "the model is being loaded; try again in a moment"
            )
            raise ModelNotReadyError(f"the model is not ready: {why}")
        return self._model

    def _load(self, cancel: CancelToken) -> None:
        try:
            self._model = self._open()
        except HeadwiseError as error:  # nobody may look at a page of the API
            log.error("headwise: the API has no model: %s", error)
            raise


def _characters(item: TextOrChat) -> int:
    if isinstance(item, str):
        return len(item)
    return sum(sum(map(len, one.values())) if isinstance(one, dict) else 1 for one in item)
