"""What does the model answer, and is the answer correct? The studies `spectral`, `probing` and `samples` depend on this one.

Shown: questions, one prompt each (a chat where the model has a template, else plain text with few-shot examples). The model
generates short answers, greedily or sampled; or the answers are given (a column `response` of the user's file, or a model
behind an OpenAI-compatible endpoint), and the model reads them in one pass (`GivenAnswersReader`), which other studies can
share. Every answer is labelled correct, wrong or refused, by rules (`corpora.matching`), by the user's own labels, or by a
judge behind an endpoint.

Stored: the exact token ids of prompt and answer, so that a later pass sees the same tokens and not a re-tokenised text, and
the log-probabilities of the answer's tokens. The token that ended an answer (`endings`) is not part of it. An empty answer is
labelled refused by the rule "empty". A question that does not fit into the model's context is an error, or is excluded and
counted (`too_long="drop"`).

Cost: one pass over the prompts and one step per token (see `decoding`); about 0.1 s per question with the default model on
two cores.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import xarray as xr

from headwise.core.dims import EXAMPLE
from headwise.core.errors import DataError, StudyError
from headwise.core.provenance import Provenance
from headwise.corpora import (
    Endpoint,
    Example,
    Question,
    Questions,
    Verdict,
    answer_ids,
    ask_all,
    default_few_shot,
    has_chat_template,
    judge,
    judge_all,
    prompt_ids,
    question_prompt,
)
from headwise.engines import Shard
from headwise.instruments.readings import HostCopy
from headwise.model import Model
from headwise.seam import Structure
from headwise.studies.answers.endings import ending, ending_ids, text_of
from headwise.studies.answers.spec import SPEC, AnsweringOptions
from headwise.studies.decoding import Ids, PrefixCachedDecoder, Reply, Sampling, common_prefix_length
from headwise.studies.inputs import StudyInputs
from headwise.studies.passes import (
    Logits,
    Observed,
    TextLogprobs,
    choose_sizes,
    read_together,
    token_logprobs,
)
from headwise.studies.run import StudyRun

CPU_BATCH, GPU_BATCH = 64, 256  # prompts
DECODED_PER_READ = 4  # tokens in the caches of a decode step, for each token that fits into a pass: caches are small
_INDEX = "index"  # of a question in the user's order; shards are cut from a list sorted by length


@dataclass(frozen=True)
class _PromptedQuestion:
    """A question with its prompt."""

    index: int  # in the user's order
    question: Question
    prompt: Ids
    given: Ids | None  # the answer's tokens where it is given
    limit: int  # tokens that an answer may have


def prepare(model: Model, inputs: StudyInputs, options: AnsweringOptions | None = None) -> StudyRun:
    """The study `answers` of this model on these questions."""
    options = options or AnsweringOptions()
    questions = inputs.questions
    chat = has_chat_template(model) if options.chat is None else options.chat
    shots = default_few_shot(chat) if options.few_shot is None else options.few_shot
    _require_all_or_no_responses(questions)
    every = [_prompted(model, index, item, options, shots, chat) for index, item in enumerate(questions.items)]
    asked = _fitting(model, every, options)
    asked.sort(key=lambda one: (len(one.prompt), one.index))
    fitting = {one.index for one in asked}
    dropped = json.dumps([one.question.id for one in every if one.index not in fitting])
    structure = Structure(model)
    sizes = choose_sizes(options, structure, tokens=16384, shard=64, example_bytes=2**12, logits=True)
    on_gpu = structure.device.type == "cuda"
    batch = options.batch or (GPU_BATCH if on_gpu else CPU_BATCH)
    provenance = _provenance(model, questions, asked, options, shots, chat, sizes.parameters | {"batch": batch})

    def finalize(shards: Sequence[xr.Dataset]) -> dict[str, xr.Dataset]:
        answers = xr.concat(shards, dim=EXAMPLE, data_vars="all")
        answers = answers.isel({EXAMPLE: np.argsort(answers[_INDEX].values)}).drop_vars(_INDEX)
        return {SPEC.name: answers.assign_attrs(title="Answers and their labels", record="[]", dropped=dropped)}

    if options.endpoint is None and asked[0].given is not None:
        given = [one.given or () for one in asked]
        reader = GivenAnswersReader(structure, asked, given, options, sizes.tokens_that_fit)
        known = None if options.judge is not None else finalize([reader.table({})])[SPEC.name]
        return StudyRun(
            provenance, len(asked), sizes.shard, lambda shard: reader.read(shard.start, shard.stop), finalize,
            reader=reader, known=known,
        )  # fmt: skip
    decoder = answering_decoder(
        model, [one.prompt for one in asked], batch, sizes.tokens_that_fit, options.batch_tokens
    )

    def measure(shard: Shard) -> xr.Dataset:
        some = asked[shard.start : shard.stop]
        if options.endpoint is None:
            return _generated(model, decoder, some, options)
        return _from_endpoint(model, some, options, shots, chat, sizes.tokens_that_fit)

    return StudyRun(provenance, len(asked), sizes.shard, measure, finalize)


def answered_questions(answers: xr.Dataset, questions: Questions) -> Questions:
    """Those of the questions that the model itself answered, for studies that ask it again."""
    known = {str(name) for name in answers[EXAMPLE].values}
    items = tuple(item for item in questions.items if item.id in known)
    if not items:
        raise DataError(
            f"none of the questions of {questions.name} is among the {len(known)} that the atlas holds answers to; give "
            "the questions that the answers were made with"
        )
    if any(item.response is not None for item in items) or Provenance.from_attrs(answers.attrs).parameters.get(
        "endpoint"
    ):
        raise StudyError(
            "the answers were given, not made by this model, so it cannot be asked again; answer with it first"
        )
    return Questions(questions.name, items)


# ---- prompts --------------------------------------------------------------------------------------------------------


def _prompted(
    model: Model, index: int, item: Question, options: AnsweringOptions, shots: int, chat: bool
) -> _PromptedQuestion:
    prompt = prompt_ids(model, item, few_shot=shots, chat=chat)
    given = None if item.response is None else _answer_tokens(model, item.response, chat)
    limit = options.reasoning_tokens if item.numeric else options.max_new_tokens
    return _PromptedQuestion(index, item, prompt, given, limit)


def _answer_tokens(model: Model, text: str, chat: bool) -> Ids:
    """A given answer as tokens, up to the first that ends an answer."""
    tokenizer: Any = model.tokenizer
    stops = ending_ids(model) - {tokenizer.unk_token_id}  # an unknown word does not end an answer
    ids = answer_ids(model, text.strip(), chat=chat)
    end = next((index for index, token in enumerate(ids) if token in stops), len(ids))
    return ids[:end]


def _require_all_or_no_responses(questions: Questions) -> None:
    if not questions.items:
        raise DataError(f"{questions.name} holds no questions; give at least one")
    missing = [item.id for item in questions.items if item.response is None]
    if missing and len(missing) < len(questions):
        raise DataError(
            f"{len(missing)} of {len(questions)} rows of {questions.name} have no response (the first is {missing[0]!r}) "
            "while others have one; give all a response (an empty text is an empty answer), or none"
        )


def _fitting(model: Model, every: Sequence[_PromptedQuestion], options: AnsweringOptions) -> list[_PromptedQuestion]:
    """The questions whose prompt and answer fit into the context; others are an error, or dropped if so configured."""
    longest = model.card.max_positions
    if longest is None:
        return list(every)
    lengths = [len(one.prompt) + (one.limit if one.given is None else len(one.given)) for one in every]
    fit = [one for one, length in zip(every, lengths, strict=True) if length <= longest]
    long = [one for one, length in zip(every, lengths, strict=True) if length > longest]
    if long and (options.too_long == "refuse" or not fit):
        one = long[0]
        what = f"{one.limit} tokens of answer" if one.given is None else f"its answer of {len(one.given)} tokens"
        others = f" (and {len(long) - 1} more)" if len(long) > 1 else ""
        raise DataError(
            f"the question {one.question.id!r}{others} does not fit: its prompt of {len(one.prompt)} tokens or more and "
            f"{what} exceed the {longest} tokens that {model.id} takes; shorten it, or leave such questions out with "
            "too_long='drop'"
        )
    return fit


def _provenance(
    model: Model,
    questions: Questions,
    asked: Sequence[_PromptedQuestion],
    options: AnsweringOptions,
    shots: int,
    chat: bool,
    sizes: Mapping[str, int],
) -> Provenance:
    shown = hashlib.blake2b(digest_size=8)  # a chat template may write the date, so the prompts themselves count
    for one in sorted(asked, key=lambda one: one.index):
        shown.update(json.dumps([one.prompt, one.given]).encode())
    data = {"name": questions.name, "size": len(asked), "given": len(questions), "digest": questions.digest}
    parameters = {key: value for key, value in asdict(options).items() if key not in ("seed", "endpoint", "judge")}
    parameters |= {**sizes, "few_shot": shots, "chat": chat, "prompts": shown.hexdigest()}
    for name in ("endpoint", "judge"):
        served: Endpoint | None = getattr(options, name)
        parameters[name] = None if served is None else f"{served.model} at {served.url}"
    return Provenance(SPEC.name, SPEC.version, model.identity(), data, parameters, options.seed)


def answering_decoder(
    model: Model, prompts: Sequence[Ids], batch: int, tokens_that_fit: int, batch_tokens: int | None
) -> PrefixCachedDecoder:
    """What generates answers to these prompts, so many at a time; ``batch_tokens``: where the user chose it."""
    on_gpu = model.device.type == "cuda"
    cached = tokens_that_fit * (DECODED_PER_READ if on_gpu and batch_tokens is None else 1)
    beginning = prompts[0][: common_prefix_length(prompts)]
    return PrefixCachedDecoder(model, beginning, batch=batch, batch_tokens=cached, share_prompts=True)


# ---- answers --------------------------------------------------------------------------------------------------------


def _generated(
    model: Model, decoder: PrefixCachedDecoder, asked: Sequence[_PromptedQuestion], options: AnsweringOptions
) -> xr.Dataset:
    """The model's own answers to some questions."""
    replies: dict[int, Reply] = {}
    for numeric in (False, True):
        some = [one for one in asked if one.question.numeric == numeric]
        if not some:
            continue
        sampling = None
        if options.temperature:
            sampling = Sampling(
                options.temperature, tuple(question_seed(options.seed, one.question.id) for one in some)
            )
        generated = decoder.generate([one.prompt for one in some], some[0].limit, ending(model, numeric), sampling)
        replies |= {one.index: reply for one, reply in zip(some, generated, strict=True)}
    ordered = [replies[one.index] for one in asked]
    texts = [text_of(model, reply.ids) for reply in ordered]
    return _table(asked, ordered, texts, _verdicts([one.question for one in asked], texts, options))


def _from_endpoint(
    model: Model, asked: Sequence[_PromptedQuestion], options: AnsweringOptions, shots: int, chat: bool, tokens: int
) -> xr.Dataset:
    """The endpoint's answers, and the model's log-probabilities of them."""
    assert options.endpoint is not None
    chats: list[Any] = [question_prompt(one.question, few_shot=shots, chat=True) for one in asked]
    limit = max(one.limit for one in asked)
    texts = ask_all(options.endpoint, chats, temperature=options.temperature, limit=limit, seed=options.seed)
    answers = [_answer_tokens(model, text, chat) for text in texts]
    longest = model.card.max_positions
    for one, ids in zip(asked, answers, strict=True):
        if longest is not None and len(one.prompt) + len(ids) > longest:
            raise DataError(
                f"the endpoint's answer to {one.question.id!r} has {len(ids)} tokens, which with its prompt of "
                f"{len(one.prompt)} exceed the {longest} that {model.id} takes; leave that question out"
            )
    questions = [
        replace(one, question=replace(one.question, response=text)) for one, text in zip(asked, texts, strict=True)
    ]
    return GivenAnswersReader(Structure(model), questions, answers, options, tokens).read(0, len(asked))


class GivenAnswersReader:
    """Reads the log-probabilities of given answers, and labels them."""

    def __init__(
        self,
        structure: Structure,
        asked: Sequence[_PromptedQuestion],
        answers: Sequence[Ids],
        options: AnsweringOptions,
        batch_tokens: int,
    ) -> None:
        self.structure, self.batch_tokens = structure, batch_tokens
        self._asked, self._answers, self._options = asked, answers, options
        self.texts: Sequence[Example] = [
            Example(one.question.id, "answer", one.prompt + ids) for one, ids in zip(asked, answers, strict=True)
        ]
        self.suffixes: Sequence[tuple[int, ...]] = [()] * len(self.texts)

    def read(self, start: int, stop: int) -> xr.Dataset:
        """Some answers, by a pass of their own."""
        return read_together({SPEC.name: self}, [text.id for text in self.texts[start:stop]])[SPEC.name]

    def first_logit(self, rows: Sequence[int]) -> int | None:
        """The last token of the shortest prompt."""
        return min(len(self._asked[row].prompt) for row in rows) - 1

    def observe(self, rows: Sequence[int | None]) -> Observed:
        """No instruments: the logits suffice."""

        def collect(logits: Logits | None) -> Callable[[], xr.Dataset]:
            assert logits is not None
            copy, own = HostCopy(), {line: row for line, row in enumerate(rows) if row is not None}
            scored = {line: TextLogprobs(len(self._asked[row].prompt), self._answers[row]) for line, row in own.items()}
            found = copy.start(token_logprobs(logits, scored))

            def read() -> xr.Dataset:
                copy.wait()
                ends = np.cumsum([len(self._answers[row]) for row in own.values()])
                parts = np.split(found().numpy(), ends[:-1])
                return self.table({row: tuple(part.tolist()) for row, part in zip(own.values(), parts, strict=True)})

            return read

        return Observed((), collect)

    def table(self, logprobs: Mapping[int, tuple[float, ...]]) -> xr.Dataset:
        """The answers with these log-probabilities; of none: all answers without."""
        rows = list(logprobs) or range(len(self._asked))
        asked = [self._asked[row] for row in rows]
        texts = [(one.question.response or "").strip() for one in asked]
        replies = [Reply(self._answers[row], logprobs.get(row, ()), finished=True) for row in rows]
        return _table(asked, replies, texts, _verdicts([one.question for one in asked], texts, self._options))


def question_seed(seed: int, name: str) -> int:
    """A question's own seed, so that batches do not change what is sampled."""
    return int.from_bytes(hashlib.blake2b(f"{seed}:{name}".encode(), digest_size=7).digest())


# ---- labels -----------------------------------------------------------------------------------------------------------


def _verdicts(questions: Sequence[Question], texts: Sequence[str], options: AnsweringOptions) -> list[Verdict]:
    if options.judge is not None and any(question.label is None for question in questions):
        judged = judge_all(options.judge, questions, texts)
    else:
        judged = [
            judge(
                text,
                question.answers,
                numeric=question.numeric,
                wrong=question.wrong_answers,
                question=question.question,
            )
            for question, text in zip(questions, texts, strict=True)
        ]
    return [
        Verdict(question.label, "given") if question.label is not None and verdict.rule != "empty" else verdict
        for question, verdict in zip(questions, judged, strict=True)
    ]


def _table(
    asked: Sequence[_PromptedQuestion], replies: Sequence[Reply], texts: Sequence[str], verdicts: Sequence[Verdict]
) -> xr.Dataset:
    questions, logprobs = [one.question for one in asked], [reply.logprobs for reply in replies]
    text: dict[str, list[str]] = {
        "question": [question.question for question in questions],
        "answer": list(texts),
        "gold": [next(iter(question.answers), "") for question in questions],
        "golds": [json.dumps(question.answers, ensure_ascii=False) for question in questions],
        "label": [verdict.label for verdict in verdicts],
        "rule": [verdict.rule for verdict in verdicts],
        "matched": [verdict.matched for verdict in verdicts],
        "topic": [question.topic for question in questions],
        "prompt_ids": [" ".join(map(str, one.prompt)) for one in asked],
        "answer_ids": [" ".join(map(str, reply.ids)) for reply in replies],
    }
    numbers: dict[str, np.ndarray] = {
        "difficulty": np.array([question.difficulty for question in questions], dtype=np.int64),
        "prompt_tokens": np.array([len(one.prompt) for one in asked], dtype=np.int64),
        "answer_tokens": np.array([len(reply.ids) for reply in replies], dtype=np.int64),
        "finished": np.array([reply.finished for reply in replies], dtype=bool),
        "logprob_mean": np.array([np.mean(each) if each else np.nan for each in logprobs], dtype=np.float32),
        "logprob_min": np.array([np.min(each) if each else np.nan for each in logprobs], dtype=np.float32),
        _INDEX: np.array([one.index for one in asked], dtype=np.int64),
    }
    return xr.Dataset(
        {name: (EXAMPLE, np.array(values, dtype=object)) for name, values in text.items()}
        | {name: (EXAMPLE, values) for name, values in numbers.items()},
        coords={EXAMPLE: np.array([question.id for question in questions], dtype=object)},
    )
