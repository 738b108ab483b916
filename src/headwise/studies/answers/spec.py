"""The spec of the study `answers`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headwise.core.dims import EXAMPLE
from headwise.core.schema import TEXT
from headwise.corpora.endpoint import Endpoint
from headwise.studies.cost import (
    ANSWER_TOKENS,
    DECODE_PASSES,
    PROMPT_TOKENS,
    SHARED_PROMPT_TOKENS,
    PlannedInputs,
    StudyCost,
    forward_flops,
)
from headwise.studies.spec import DatasetSpec, Method, StudyOptions, StudySpec, Variable, option

if TYPE_CHECKING:
    from headwise.model.card import ModelCard


@dataclass(frozen=True)
class AnsweringOptions(StudyOptions):
    """What can be chosen about the study `answers`: what does the model say when it is asked, and is it right?

    Examples:
        Labels by a served model instead of rules.

        >>> from headwise.corpora import Endpoint
        >>> AnsweringOptions(judge=Endpoint("http://localhost:8000/v1", "my-judge"), max_new_tokens=64).judge.model
        'my-judge'
    """

    study = "answers"
    few_shot: int | None = option(None, "examples before a question; None is what suits the kind of prompt")
    chat: bool | None = option(None, "whether to use the chat template; None is yes if there is one")
    max_new_tokens: int = option(32, "of an answer, at most", minimum=1)
    reasoning_tokens: int = option(192, "for word problems, which are worked out in steps", minimum=1)
    temperature: float = option(0.0, "0 takes the likeliest token", minimum=0)
    endpoint: Endpoint | None = option(None, "answers come from there, and the model only reads them")
    judge: Endpoint | None = option(None, "labels come from there instead of from rules")
    too_long: str = option(
        "refuse", 'or "drop": what to do with a question that does not fit into the context', choices=("refuse", "drop")
    )
    batch: int = option(64, "prompts at a time", minimum=1)
    batch_tokens: int = option(16384, "tokens in a batch, padding included")
    shard: int = option(64, "questions between two commits", minimum=1)
    seed: int = option(0, "of sampling, where the temperature is over 0")


def _cost(card: ModelCard, inputs: PlannedInputs) -> StudyCost:
    texts = [PROMPT_TOKENS - SHARED_PROMPT_TOKENS + ANSWER_TOKENS] * inputs.questions
    return StudyCost(
        len(texts), sum(texts), forward_flops(card, texts), min(64 * PROMPT_TOKENS, sum(texts)), 250 * len(texts),
        slowdown=2.25, unit="questions", passes_per_batch=DECODE_PASSES,
    )  # fmt: skip


ANSWERS = DatasetSpec(
    name="answers",
    question="What did the model answer, and was it right?",
    method=Method(
        "The model answers each question greedily; a stated matching rule labels the answer correct or "
        "wrong. Refusals and answers that were cut off are kept apart. All studies of right and wrong "
        "answers start from this table."
    ),
    variables=(
        Variable("question", (EXAMPLE,), "question asked", dtype=TEXT),
        Variable("answer", (EXAMPLE,), "what the model said", dtype=TEXT),
        Variable("gold", (EXAMPLE,), "right answer to show", dtype=TEXT),
        Variable("golds", (EXAMPLE,), "all answers that count as right, a JSON list", dtype=TEXT),
        Variable("label", (EXAMPLE,), "correct, wrong or refused", dtype=TEXT),
        Variable("rule", (EXAMPLE,), "what decided the label", dtype=TEXT),
        Variable("matched", (EXAMPLE,), "right answer that the rule found", dtype=TEXT),
        Variable("topic", (EXAMPLE,), "topic of the question", dtype=TEXT),
        Variable("prompt_ids", (EXAMPLE,), "token ids of the prompt, decimal, separated by blanks", dtype=TEXT),
        Variable("answer_ids", (EXAMPLE,), "token ids of the answer, decimal, separated by blanks", dtype=TEXT),
        Variable("difficulty", (EXAMPLE,), "difficulty of the question", dtype="int64"),
        Variable("prompt_tokens", (EXAMPLE,), "length of the prompt", dtype="int64", unit="tokens"),
        Variable("answer_tokens", (EXAMPLE,), "length of the answer", dtype="int64", unit="tokens"),
        Variable("finished", (EXAMPLE,), "whether the answer ended by itself rather than being cut", dtype="bool"),
        Variable(
            "logprob_mean", (EXAMPLE,), "mean log-probability of the answer's tokens", dtype="float32", unit="nats"
        ),
        Variable(
            "logprob_min", (EXAMPLE,), "smallest log-probability of the answer's tokens", dtype="float32", unit="nats"
        ),
        Variable("example", (EXAMPLE,), dtype=TEXT, coordinate=True),
    ),
    examples="questions",
    read_with="headwise answers {atlas}",
    on_own_answers=True,
)

SPEC = StudySpec(
    name="answers",
    package=__package__,
    version=1,
    options=AnsweringOptions,
    produces=(ANSWERS,),
    inputs=("questions",),
    cost=_cost,
)
