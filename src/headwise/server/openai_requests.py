"""What a client may ask of `/v1/chat/completions` and `/v1/completions`, and what is refused.

A parameter that would change the answer is either honoured or refused by name; none is ignored silently. Three groups:

| group    | parameters                                                                                              |
|----------|---------------------------------------------------------------------------------------------------------|
| honoured | model, messages or prompt, temperature, top_p, seed, stop, max_tokens, max_completion_tokens, n, stream, |
|          | stream_options.include_usage, logprobs (of the chosen tokens)                                           |
| harmless | user, metadata, store, service_tier, safety_identifier, prompt_cache_key, parallel_tool_calls: they      |
|          | change nothing here, as they may anywhere                                                               |
| refused  | `REFUSED`, unless their value asks for nothing; and every name that is not listed                       |

Defaults are OpenAI's: temperature 1, a random seed, 16 tokens for a completion and as many as the server allows for a chat.
A detector is fitted on greedy answers: send temperature 0 to get those.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar

import msgspec

from headwise.core.parsing import Scalar, parse
from headwise.server.openai_errors import ApiError

__all__ = ["ChatRequest", "CompletionRequest", "Generating", "SamplingParameters", "read_request", "sampling_of"]

MAX_STOPS, MAX_STOP_CHARACTERS = 16, 256
MAX_MESSAGES = 4096
DEFAULT_COMPLETION_TOKENS = 16
REFUSED: dict[
    str, tuple[tuple[Any, ...], str]
] = {  # name -> values that ask for nothing, and the reason for all others
    "audio": ((None,), "the model writes text only"),
    "best_of": ((None, 1), "it hides answers; n returns all of them"),
    "echo": ((None, False), "only generated tokens are returned"),
    "frequency_penalty": ((None, 0), "tokens are drawn from the model's own distribution"),
    "function_call": ((None, "none"), "the model calls no tools here"),
    "functions": ((None, []), "the model calls no tools here"),
    "logit_bias": ((None, {}), "tokens are drawn from the model's own distribution"),
    "modalities": ((None, ["text"]), "the model writes text only"),
    "prediction": ((None,), "answers are not predicted from a text"),
    "presence_penalty": ((None, 0), "tokens are drawn from the model's own distribution"),
    "reasoning_effort": ((None,), "models here have no such setting"),
    "response_format": ((None, {"type": "text"}), "the form of an answer is not enforced"),
    "suffix": ((None, ""), "the model continues a text and fills no gaps"),
    "tool_choice": ((None, "none", "auto"), "the model calls no tools here"),
    "tools": ((None, []), "the model calls no tools here"),
    "top_logprobs": ((None, 0), "only the log-probability of the chosen token is returned"),
    "verbosity": ((None,), "models here have no such setting"),
    "web_search_options": ((None,), "this server asks no other"),
}
T = TypeVar("T", bound="Generating")


class TextPart(msgspec.Struct, forbid_unknown_fields=True):
    """A part of a message; the type `text` is the only one."""

    text: str
    type: Literal["text"] = "text"


class ChatMessage(msgspec.Struct, forbid_unknown_fields=True):
    """A turn. The fields after `name` are those of an answer that a client sends back, where they hold nothing."""

    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[TextPart]
    name: str | None = None
    refusal: None = None
    audio: None = None
    function_call: None = None
    annotations: Annotated[list[None], msgspec.Meta(max_length=0)] | None = None
    tool_calls: Annotated[list[None], msgspec.Meta(max_length=0)] | None = None

    def plain(self) -> dict[str, str]:
        """The turn as a chat template takes it; `developer` is OpenAI's newer word for `system`."""
        text = self.content if isinstance(self.content, str) else "".join(part.text for part in self.content)
        role = "system" if self.role == "developer" else self.role
        return {"role": role, "content": text} | ({"name": self.name} if self.name else {})


class StreamOptions(msgspec.Struct, forbid_unknown_fields=True):
    """How an answer is streamed."""

    include_usage: bool | None = None
    include_obfuscation: bool | None = None  # padding against eavesdroppers of OpenAI's own service


class Generating(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The parameters that both requests share."""

    model: str
    temperature: Annotated[float, msgspec.Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, msgspec.Meta(gt=0, le=1)] | None = None
    seed: Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)] | None = None
    stop: str | Annotated[list[str], msgspec.Meta(max_length=MAX_STOPS)] | None = None
    max_tokens: Annotated[int, msgspec.Meta(ge=1, le=2**31)] | None = None
    n: Annotated[int, msgspec.Meta(ge=1, le=128)] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    # harmless
    metadata: dict[str, Scalar] | None = None
    prompt_cache_key: str | None = None
    safety_identifier: str | None = None
    service_tier: str | None = None
    store: bool | None = None
    user: str | None = None
    # refused unless they ask for nothing
    frequency_penalty: Any = None
    logit_bias: Any = None
    presence_penalty: Any = None


class ChatRequest(Generating, forbid_unknown_fields=True, kw_only=True):
    """The body of `/v1/chat/completions`."""

    messages: Annotated[list[ChatMessage], msgspec.Meta(min_length=1, max_length=MAX_MESSAGES)]
    max_completion_tokens: Annotated[int, msgspec.Meta(ge=1, le=2**31)] | None = None
    logprobs: bool | None = None
    parallel_tool_calls: bool | None = None  # harmless without tools
    audio: Any = None
    function_call: Any = None
    functions: Any = None
    modalities: Any = None
    prediction: Any = None
    reasoning_effort: Any = None
    response_format: Any = None
    tool_choice: Any = None
    tools: Any = None
    top_logprobs: Any = None
    verbosity: Any = None
    web_search_options: Any = None

    @property
    def wants_logprobs(self) -> bool:
        """Whether the log-probabilities of the chosen tokens are asked for."""
        return bool(self.logprobs)


class CompletionRequest(Generating, forbid_unknown_fields=True, kw_only=True):
    """The body of `/v1/completions`: a text, token ids, or a list of either."""

    prompt: str | list[str | int | list[int]]
    logprobs: Annotated[int, msgspec.Meta(ge=0, le=5)] | None = None
    best_of: Any = None
    echo: Any = None
    suffix: Any = None

    @property
    def wants_logprobs(self) -> bool:
        """Whether the log-probabilities of the chosen tokens are asked for; 0 asks for these alone."""
        return self.logprobs is not None

    def prompts(self) -> list[str | list[int]]:
        """One text or list of token ids per answer."""
        if isinstance(self.prompt, str):
            return [self.prompt]
        texts = [one for one in self.prompt if isinstance(one, str)]
        ids = [one for one in self.prompt if isinstance(one, int)]
        lists = [one for one in self.prompt if isinstance(one, list)]
        if not self.prompt or len(self.prompt) not in (len(texts), len(ids), len(lists)):
            raise ApiError("prompt must be a text, a list of texts, or one or more lists of token ids", param="prompt")
        return [ids] if ids else [*texts, *lists]


@dataclass(frozen=True)
class SamplingParameters:
    """How the tokens of an answer are drawn."""

    max_new_tokens: int | None  # None: as many as the server allows
    temperature: float
    top_p: float
    seed: int
    stop: tuple[str, ...]
    n: int


def read_request(body: bytes, kind: type[T]) -> T:
    """The body as that request; ApiError with the parameter that does not fit."""
    try:
        found = parse(body, kind)
    except json.JSONDecodeError as error:
        raise ApiError("the body is not JSON; send an object with the parameters") from error
    except ValueError as error:
        raise _misfit(str(error)) from error
    for name, (neutral, why) in REFUSED.items():
        value = getattr(found, name, None)
        if value not in neutral:
            raise ApiError(f"{name} is not supported: {why}; leave it out", param=name, code="unsupported_parameter")
    if found.stream_options is not None and not found.stream:
        raise ApiError("stream_options is for streamed answers only; set stream to true", param="stream_options")
    return found


def sampling_of(asked: Generating) -> SamplingParameters:
    """The sampling that a request asks for, with OpenAI's defaults."""
    limit = asked.max_tokens
    if isinstance(asked, ChatRequest):
        given = {one for one in (limit, asked.max_completion_tokens) if one is not None}
        if len(given) > 1:
            raise ApiError("max_tokens and max_completion_tokens differ; send one of them", param="max_tokens")
        limit = next(iter(given), None)
    elif limit is None:
        limit = DEFAULT_COMPLETION_TOKENS
    temperature, top_p = (1.0 if value is None else value for value in (asked.temperature, asked.top_p))
    if isinstance(asked, CompletionRequest) and asked.logprobs and (asked.logprobs > 1 or temperature > 0):
        raise ApiError(
            "logprobs above 0 asks for the most likely tokens, but only the log-probability of the chosen token is "
            "returned; send 0 (with temperature 0 the chosen token is the most likely one, and 1 is accepted)",
            param="logprobs",
            code="unsupported_parameter",
        )
    seed = secrets.randbits(62) if asked.seed is None else asked.seed % 2**63
    return SamplingParameters(limit, temperature, top_p, seed, _stops(asked.stop), asked.n or 1)


def _stops(stop: str | Sequence[str] | None) -> tuple[str, ...]:
    stops = (stop,) if isinstance(stop, str) else tuple(stop or ())
    if any(not text or len(text) > MAX_STOP_CHARACTERS for text in stops):
        raise ApiError(f"a stop text must have 1 to {MAX_STOP_CHARACTERS} characters", param="stop")
    return stops


def _misfit(text: str) -> ApiError:
    """What the parser says of a body, as a sentence with the name of the parameter."""
    unknown = re.match(r"Object contains unknown field `([^`]*)`(?: - at `\$\.?(.*)`)?", text)
    if unknown is not None:
        inside = f" in {unknown[2]}" if unknown[2] else ""
        return ApiError(f"there is no parameter {unknown[1]!r}{inside} here; leave it out", param=unknown[1])
    place = re.search(r" - at `\$\.(\w+)", text)
    return ApiError(f"the request does not fit: {text}", param=place[1] if place else None)
