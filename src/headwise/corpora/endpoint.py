"""A model served by an OpenAI-compatible endpoint, to answer questions or to judge answers; both are opt-in.

One POST to ``URL/chat/completions`` per question, several concurrently, with the standard library alone; failed requests
are retried with exponential backoff. The API key, if needed, is read from an environment variable and never passed as an
argument, so no record contains it. A redirect is not followed: the key would go to another server, and its reply would be
taken for an answer.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from headwise.core.errors import DataError
from headwise.core.parsing import parse
from headwise.corpora.matching import CORRECT, LABELS, REFUSED, WRONG, Verdict
from headwise.corpora.normalisation import words
from headwise.corpora.questions import Question

MAX_REPLY = 2**24  # bytes

JUDGE_PROMPT = """You mark answers to questions. Say only one word: correct, wrong or refused.
- correct: the answer means the same as one of the right answers.
- refused: the answer says that it does not know, or declines.
- wrong: anything else, also if several answers are given and not all are right.

Question: {question}
Right answers: {golds}
Answer: {answer}
One word:"""


@dataclass(frozen=True)
class Endpoint:
    """The address of a model served by the OpenAI protocol (vLLM, llama.cpp, Ollama and others).

    Examples:
        >>> Endpoint("http://localhost:8000/v1", "my-model").concurrency
        8
        >>> Endpoint("localhost:8000", "my-model")
        Traceback (most recent call last):
            ...
        headwise.core.errors.DataError: an endpoint is a URL such as http://localhost:8000/v1, not 'localhost:8000'
    """

    url: str  # such as http://localhost:8000/v1
    model: str  # the served model's name
    key_variable: str = "OPENAI_API_KEY"  # the environment variable with the API key, if one is needed
    timeout: float = 60.0  # seconds per request
    tries: int = 4  # attempts per request
    backoff: float = 0.5  # seconds before the second attempt, doubled before each further one
    concurrency: int = 8  # simultaneous requests

    def __post_init__(self) -> None:
        if not self.url.startswith(("http://", "https://")):
            raise DataError(f"an endpoint is a URL such as http://localhost:8000/v1, not {self.url!r}")
        if not self.model:
            raise DataError(f"the endpoint {self.url} needs the name of the model served there; give model='NAME'.")

    def ask(
        self, messages: Sequence[dict[str, str]], *, temperature: float = 0.0, limit: int = 64, seed: int = 0
    ) -> str:
        """The text of one reply."""
        body = {
            "model": self.model, "messages": list(messages), "temperature": temperature, "max_tokens": limit, "seed": seed,
        }  # fmt: skip
        reply = self._post(json.dumps(body).encode())
        try:
            return str(reply["choices"][0]["message"]["content"] or "").strip()
        except (KeyError, IndexError, TypeError) as error:
            raise DataError(
                f"{self.url} did not answer as an OpenAI-compatible endpoint does (no choices[0].message.content in "
                f"{json.dumps(reply)[:200]}); check the URL, which usually ends in /v1"
            ) from error

    def _post(self, body: bytes) -> dict[str, Any]:
        headers = {"Content-Type": "application/json"}
        key = os.environ.get(self.key_variable)
        if key:
            headers["Authorization"] = f"Bearer {key}"
        address = self.url.rstrip("/") + "/chat/completions"
        import urllib.error  # loads http and email, which the options of studies, declared with this type, do not need
        import urllib.request

        class NoRedirects(urllib.request.HTTPRedirectHandler):
            def redirect_request(self, *_: Any) -> None:
                return None

        opener = urllib.request.build_opener(NoRedirects)
        request = urllib.request.Request(address, data=body, headers=headers, method="POST")
        for attempt in range(self.tries):
            try:
                with opener.open(request, timeout=self.timeout) as response:
                    found: dict[str, Any] = parse(response.read(MAX_REPLY), dict[str, Any])
                    return found
            except urllib.error.HTTPError as error:
                if 300 <= error.code < 400:
                    with error:
                        to = error.headers.get("Location", "nowhere")[:200]
                    raise DataError(
                        f"{address} redirects to {to}, which is not followed, since the key would go there; give the URL that "
                        "answers itself"
                    ) from error
                with error:
                    reason = f"{error.code} {error.reason}: {error.read()[:200].decode(errors='replace')}".strip(": ")
                if error.code < 500 and error.code not in (408, 429):
                    break
            except (OSError, ValueError) as error:  # no connection, a timeout, or no JSON
                reason = str(getattr(error, "reason", error)) or type(error).__name__
            if attempt + 1 < self.tries:
                time.sleep(self.backoff * 2**attempt)
        raise DataError(
            f"{address} does not answer ({reason}); check the URL, the model's name and {self.key_variable}"
        )


def ask_all(
    endpoint: Endpoint, prompts: Sequence[Sequence[dict[str, str]]], *, temperature: float, limit: int, seed: int
) -> list[str]:
    """One reply per chat, in order."""
    with ThreadPoolExecutor(endpoint.concurrency) as pool:
        return list(pool.map(lambda chat: endpoint.ask(chat, temperature=temperature, limit=limit, seed=seed), prompts))


def judge_all(endpoint: Endpoint, questions: Sequence[Question], answers: Sequence[str]) -> list[Verdict]:
    """The served model's verdict on each answer. An empty answer counts as refused without a request."""

    def one(question: Question, answer: str) -> Verdict:
        if not words(answer):
            return Verdict(REFUSED, "empty")
        text = JUDGE_PROMPT.format(question=question.question, golds=" | ".join(question.answers), answer=answer)
        reply = words(endpoint.ask([{"role": "user", "content": text}], limit=8))
        word = next((word for word in reply if word in (*LABELS, "incorrect")), None)
        if word is None:
            raise DataError(
                f"the judge {endpoint.model} replied {' '.join(reply)!r} about the answer to {question.id!r}, which is "
                f"none of {', '.join(LABELS)}; use a judge that follows instructions"
            )
        return Verdict({"incorrect": WRONG}.get(word, word), "judge", question.answers[0] if word == CORRECT else "")

    with ThreadPoolExecutor(endpoint.concurrency) as pool:
        return list(pool.map(one, questions, answers))
