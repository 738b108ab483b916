"""A model behind an OpenAI-compatible endpoint: it can answer questions, and it can judge answers.

Both are off unless asked for. One POST to ``URL/chat/completions`` a question, several at a time, with the standard
library alone; a failed request is tried again a few times, with a longer wait each time. The key, if the server wants
one, is read from the environment variable that is named (never from an argument, so that it enters no record).

This module does not know which model is being measured.
"""

from __future__ import annotations

import json
import os
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from headwise.core.errors import DataError
from headwise.corpora.matching import CORRECT, LABELS, REFUSED, WRONG, Verdict
from headwise.corpora.questions import Question
from headwise.corpora.wording import words

__all__ = ["Endpoint", "answers_from", "judged_by"]

JUDGE = """You mark answers to questions. Say only one word: correct, wrong or refused.
- correct: the answer means the same as one of the right answers.
- refused: the answer says that it does not know, or declines.
- wrong: anything else, also if several answers are given and not all are right.

Question: {question}
Right answers: {golds}
Answer: {answer}
One word:"""


@dataclass(frozen=True)
class Endpoint:
    """Where a model is served, by the OpenAI protocol (vLLM, llama.cpp, Ollama and others speak it).

    Examples:
        >>> Endpoint("http://localhost:8000/v1", "my-model").together
        8
        >>> Endpoint("localhost:8000", "my-model")
        Traceback (most recent call last):
            ...
        headwise.core.errors.DataError: an endpoint is a URL such as http://localhost:8000/v1, not 'localhost:8000'
    """

    url: str  # such as http://localhost:8000/v1
    model: str  # its name there
    key_variable: str = "OPENAI_API_KEY"  # the environment variable that holds the key, if one is needed
    timeout: float = 60.0  # seconds a request
    tries: int = 4  # before it is given up
    pause: float = 0.5  # seconds before the second try; doubled before each further one
    together: int = 8  # requests at a time

    def __post_init__(self) -> None:
        if not self.url.startswith(("http://", "https://")):
            raise DataError(f"an endpoint is a URL such as http://localhost:8000/v1, not {self.url!r}")
        if not self.model:
            raise DataError(
                "an endpoint needs the name of the model it should use; give its NAME (--endpoint-model, --judge-model)"
            )

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

    def _post(self, body: bytes) -> Any:
        headers = {"Content-Type": "application/json"}
        key = os.environ.get(self.key_variable)
        if key:
            headers["Authorization"] = f"Bearer {key}"
        address = self.url.rstrip("/") + "/chat/completions"
        request = urllib.request.Request(address, data=body, headers=headers, method="POST")
        for turn in range(self.tries):
            try:
                with urllib.request.urlopen(request, timeout=self.timeout) as response:
                    return json.loads(response.read())
            except urllib.error.HTTPError as error:
                with error:
                    reason = f"{error.code} {error.reason}: {error.read()[:200].decode(errors='replace')}".strip(": ")
                if error.code < 500 and error.code not in (408, 429):
                    break
            except (OSError, ValueError) as error:  # no connection, a time-out, or no JSON
                reason = str(getattr(error, "reason", error)) or type(error).__name__
            if turn + 1 < self.tries:
                time.sleep(self.pause * 2**turn)
        raise DataError(
            f"{address} does not answer ({reason}); check the URL, the model's name and {self.key_variable}"
        )


def answers_from(
    endpoint: Endpoint, prompts: Sequence[Sequence[dict[str, str]]], *, temperature: float, limit: int, seed: int
) -> list[str]:
    """One reply a chat, in order."""
    with ThreadPoolExecutor(endpoint.together) as pool:
        return list(pool.map(lambda chat: endpoint.ask(chat, temperature=temperature, limit=limit, seed=seed), prompts))


def judged_by(endpoint: Endpoint, questions: Sequence[Question], answers: Sequence[str]) -> list[Verdict]:
    """What a served model thinks of each answer. An empty answer is refused without asking."""

    def one(question: Question, answer: str) -> Verdict:
        if not words(answer):
            return Verdict(REFUSED, "empty")
        text = JUDGE.format(question=question.question, golds=" | ".join(question.answers), answer=answer)
        said = words(endpoint.ask([{"role": "user", "content": text}], limit=8))
        word = next((word for word in said if word in (*LABELS, "incorrect")), None)
        if word is None:
            raise DataError(
                f"the judge {endpoint.model} said {' '.join(said)!r} about the answer to {question.id!r}, which is none of "
                f"{', '.join(LABELS)}; use a judge that follows instructions"
            )
        return Verdict({"incorrect": WRONG}.get(word, word), "judge", question.answers[0] if word == CORRECT else "")

    with ThreadPoolExecutor(endpoint.together) as pool:
        return list(pool.map(one, questions, answers))
