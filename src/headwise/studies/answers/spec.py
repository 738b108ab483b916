"""The spec of the study `answers`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headwise.core.dims import EXAMPLE
from headwise.core.options import shard_option
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
    """Options of the study `answers`: what does the model answer, and is the answer correct?

    Examples:
        Labels by a served model instead of rules.

        >>> from headwise.corpora import Endpoint
        >>> AnsweringOptions(judge=Endpoint("http://localhost:8000/v1", "my-judge"), max_new_tokens=64).judge.model
        'my-judge'
    """

    study = "answers"
    few_shot: int | None = option(
        None, "number of worked examples before each question, 0 to 5; None: 0 with the chat template, else 5"
    )
    chat: bool | None = option(None, "whether to use the chat template; None: if the model has one")
    max_new_tokens: int = option(32, "maximum number of tokens in an answer", minimum=1)
    reasoning_tokens: int = option(
        192, "maximum number of tokens in an answer to a word problem, which is solved in steps", minimum=1
    )
    temperature: float = option(0.0, "sampling temperature; 0 is greedy", minimum=0)
    endpoint: Endpoint | None = option(
        None,
        "server that generates the answers; the model then only reads them",
        cli="--endpoint URL --endpoint-model NAME",
    )
    judge: Endpoint | None = option(
        None, "server that labels the answers instead of the matching rules", cli="--judge URL --judge-model NAME"
    )
    too_long: str = option(
        "refuse",
        "questions that do not fit into the context: refuse (stop with an error) or drop (leave them out)",
        choices=("refuse", "drop"),
    )
    batch: int | None = option(None, "prompts per batch; None: 64 on a CPU, 256 on a GPU", minimum=1)
    batch_tokens: int | None = option(
        None,
        "tokens per batch, padding included; None: 16,384, or as many as fit on a GPU, and four times as many while answers "
        "are generated there",
        minimum=1,
    )
    shard: int | None = shard_option(64)  # examples between saves; None: by the device
    seed: int = option(0, "random seed of sampling, where the temperature is above 0")


def _cost(card: ModelCard, inputs: PlannedInputs) -> StudyCost:
    texts = [PROMPT_TOKENS - SHARED_PROMPT_TOKENS + ANSWER_TOKENS] * inputs.questions
    return StudyCost(
        len(texts), sum(texts), forward_flops(card, texts), min(64 * PROMPT_TOKENS, sum(texts)), 250 * len(texts),
        slowdown=2.25, unit="questions", passes_per_batch=DECODE_PASSES,
    )  # fmt: skip


ANSWERS = DatasetSpec(
    name="answers",
    question="What did the model answer, and was it correct?",
    method=Method(
        "The model answers each question greedily; a stated matching rule labels the answer correct or "
        "wrong. Refusals and truncated answers are marked. All studies of correct and wrong answers start "
        "from this table."
    ),
    variables=(
        Variable("question", (EXAMPLE,), "question", dtype=TEXT),
        Variable("answer", (EXAMPLE,), "answer of the model", dtype=TEXT),
        Variable("gold", (EXAMPLE,), "correct answer to show", dtype=TEXT),
        Variable("golds", (EXAMPLE,), "all answers that count as correct, a JSON list", dtype=TEXT),
        Variable("label", (EXAMPLE,), "correct, wrong or refused", dtype=TEXT),
        Variable("rule", (EXAMPLE,), "rule that decided the label", dtype=TEXT),
        Variable("matched", (EXAMPLE,), "correct answer that the rule matched", dtype=TEXT),
        Variable("topic", (EXAMPLE,), "topic of the question", dtype=TEXT),
        Variable("prompt_ids", (EXAMPLE,), "token ids of the prompt, decimal, separated by blanks", dtype=TEXT),
        Variable("answer_ids", (EXAMPLE,), "token ids of the answer, decimal, separated by blanks", dtype=TEXT),
        Variable("difficulty", (EXAMPLE,), "difficulty of the question", dtype="int64"),
        Variable("prompt_tokens", (EXAMPLE,), "length of the prompt", dtype="int64", unit="tokens"),
        Variable("answer_tokens", (EXAMPLE,), "length of the answer", dtype="int64", unit="tokens"),
        Variable(
            "finished", (EXAMPLE,), "whether the answer ended by itself rather than being truncated", dtype="bool"
        ),
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
    inputs=("questions", "responses"),
    shares_pass="answers",
    cost=_cost,
)
