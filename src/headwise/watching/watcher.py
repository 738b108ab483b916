"""`watch`: score answers while a model generates them, and raise an alarm when one is likely wrong.

    watch = hw.watch(model, "atlas", at=0.1)                 # alarms for at most 10 % of correct answers
    for event in watch.stream("What is the capital of Norway?"):
        print(event.text, event.probability, event.heads)    # a token, and what is known with it
    answer = watch.answer("What is the capital of Norway?")  # the same, collected

    with watch:                                              # any `generate`, any streamer
        model.generate(**inputs, stopping_criteria=[watch], streamer=streamer)
    watch.answers[0].probability

What is watched: the scores of the atlas's study `streaming`, or any score that can be updated token by token
(`probes.running_scores`). Without a name it is the atlas's default: the fitted detector where it beats the smallest
log-probability on questions that it was not fitted on, else the smallest log-probability; `note` says which, and why.

What happens at an alarm (`action`): "flag" marks the events; "stop" ends the answer there; "abstain" ends it and replaces it.

Cost: see `watching.generation`. No second pass over the answer. Under ``with watch`` the model's ``generate`` runs as usual,
with one row of attention per layer computed in the seam; transformers' automatic compilation for static caches must be off
(``disable_compile=True``), because a compiled graph does not call the seam.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Literal, Self

import torch
from torch import Tensor

from headwise.atlas import Atlas
from headwise.core.errors import AtlasError, DataError, SeamError, did_you_mean
from headwise.corpora.prompts import has_chat_template, typed_prompt_ids
from headwise.model import Model, load
from headwise.probes.running_scores import LOGPROB_MIN, UNFITTED, RunningDetector, RunningScore
from headwise.seam import observe
from headwise.stats.conformal import Threshold
from headwise.studies.answers.endings import ending
from headwise.studies.decoding import DecodedTokens, PrefixCachedDecoder
from headwise.watching.fitted import STUDY, WatchedScore, known_scores, refuse_other_model, watchable
from headwise.watching.generation import Answers, Finished, Prompt, Stream, TokenScore

Action = Literal["flag", "stop", "abstain"]
ACTIONS: tuple[Action, ...] = ("flag", "stop", "abstain")
ABSTENTION = "I am not sure."


@dataclass(frozen=True)
class WatchedAnswer:
    """A generated answer with its scores.

    Examples:
        >>> answer = hw.watch(model, "RAUQ").answer("where was the river ?", max_new_tokens=3)
        >>> answer.text, len(answer.tokens), answer.alarm
        ('? ? ?', 3, False)
    """

    text: str  # with action "abstain", the abstention where there was an alarm
    tokens: tuple[TokenScore, ...]  # the events that hold a token
    score: float  # of the whole answer; NaN for an empty one
    probability: float  # that it is wrong; NaN where the score has no calibration
    heads: dict[str, float] = field(default_factory=dict)  # that drive the score
    unusual: list[str] = field(default_factory=list)  # feature sets outside the range of the training answers
    alarm: bool = False  # whether there was one
    finished: Finished | None = None  # "stop", "length", "cancelled" or "alarm"
    others: dict[str, float] = field(default_factory=dict)  # what each feature set adds to the log-odds


class Watch:
    """Scores answers of a model while they are generated. Made by `watch`.

    Args:
        model: that generates.
        watched: the score.
        threshold: above which an alarm is raised; None: never.
        guarantee: what the threshold promises.
        action: "flag", "stop" or "abstain".
        on_alarm: called with the event that raises an alarm.
        few_shot: examples before a question; None: questions are not asked in the format of an atlas.
        chat: whether questions are asked as a chat.
        abstention: the text that replaces an answer.

    Examples:
        >>> watch = hw.watch(model, answered)
        >>> watch.answer("where was the river ?").finished
        'length'
    """

    def __init__(
        self, model: Model, watched: WatchedScore, *, threshold: float | None = None,
        guarantee: Threshold | None = None, action: Action = "flag",
        on_alarm: Callable[[TokenScore], object] | None = None, few_shot: int | None = None, chat: bool | None = None,
        abstention: str = ABSTENTION,
    ):  # fmt: skip
        if action not in ACTIONS:
            raise DataError(f"{action!r} is no action. {did_you_mean(action, ACTIONS)}")
        if model.tokenizer is None:
            raise DataError(f"watching needs a tokenizer, and {model.no_tokenizer}; load the model with one")
        self.model, self.watched, self.guarantee = model, watched, guarantee
        self.threshold, self.action, self.abstention = threshold, action, abstention
        self._ended: _GenerateHooks | None = None
        self._on_alarm, self._few_shot, self._chat = on_alarm, few_shot, chat
        self._decoder: PrefixCachedDecoder | None = None
        self._hooks: _GenerateHooks | None = None

    def __repr__(self) -> str:
        alarm = "no alarm" if self.threshold is None else f"alarm above {self.threshold:.3g} ({self.action})"
        return f"<Watch of {self.model.id}: {self.watched.name}, {alarm}>"

    @property
    def note(self) -> str:
        """Which score is watched, how good it is, and what the threshold guarantees."""
        what = f"{self.watched.name}: {self.watched.note}." if self.watched.note else f"{self.watched.name}."
        return what if self.guarantee is None else f"{what} {self.guarantee.statement}"

    # ---- answers that Headwise generates ---------------------------------------------------------------------------

    def prompt(
        self, text: str, *, mode: str | None = None, context: str = "", max_new_tokens: int = 32,
        temperature: float = 0.0, top_p: float = 1.0, seed: int = 0,
    ) -> Prompt:  # fmt: skip
        """A prompt.

        Args:
            text: what is asked or continued.
            mode: "question" (in the format of the atlas, the answer ends with its sentence), "chat" (a user's turn), or
                "text" (continued as it is); by default a question where the atlas says how to ask one, else a chat where the
                model has a template, else a text.
            context: for a question, a text to answer from.
            max_new_tokens: of the answer.
            temperature: 0 is greedy.
            top_p: sample from the smallest set of tokens with this probability.
            seed: of the sampling.

        Returns:
            Token ids, and how the answer ends.
        """
        if mode is None:
            mode = "question" if self._few_shot is not None else "chat" if has_chat_template(self.model) else "text"
        ids = typed_prompt_ids(self.model, text, mode, context=context, few_shot=self._few_shot, chat=self._chat)
        ends = ending(self.model, numeric=False) if mode == "question" else None
        return Prompt(ids, max_new_tokens, temperature, top_p, seed, ends=ends)

    def stream(self, prompts: str | Prompt | Sequence[str | Prompt], **options: Any) -> Stream:
        """Generate answers; an event per token.

        Args:
            prompts: one or several, answered as one batch; texts become prompts by `prompt`.
            **options: of `prompt`, for texts.

        Returns:
            An iterator of `TokenScore`; the row of an event is the number of its prompt.

        Examples:
            >>> watch = hw.watch(model, "RAUQ")
            >>> [event.text for event in watch.stream("where was the river ?", mode="text", max_new_tokens=3)]
            ['?', ' ?', ' ?']
        """
        given = [prompts] if isinstance(prompts, str | Prompt) else list(prompts)
        made = [one if isinstance(one, Prompt) else self.prompt(one, **options) for one in given]
        for one in made:
            self._check_fits(one)
        if self._decoder is None:
            self._decoder = PrefixCachedDecoder(self.model)
        return Stream(self._decoder, self._new_answers, made)

    def answer(self, prompt: str | Prompt, **options: Any) -> WatchedAnswer:
        """Generate one answer.

        Args:
            prompt: a text or a prompt.
            **options: of `prompt`, for a text.

        Returns:
            The answer with its scores.
        """
        return self.collect(self.stream(prompt, **options))[0]

    def collect(self, events: Iterator[TokenScore]) -> list[WatchedAnswer]:
        """The answers of a stream.

        Args:
            events: of `stream`.

        Returns:
            In the order of their prompts.
        """
        by_row: dict[int, list[TokenScore]] = {}
        for event in events:
            by_row.setdefault(event.row, []).append(event)
        return [self._collected(by_row[row]) for row in sorted(by_row)]

    def _collected(self, events: Sequence[TokenScore]) -> WatchedAnswer:
        last = events[-1]
        text = "".join(event.text for event in events).strip()
        if last.alarm and self.action == "abstain":
            text = self.abstention
        tokens = tuple(event for event in events if event.token >= 0)
        return WatchedAnswer(
            text, tokens, last.score, last.probability, last.heads, last.unusual, last.alarm, last.finished, last.others
        )

    def _check_fits(self, prompt: Prompt) -> None:
        longest = self.model.card.max_positions
        if longest is not None and len(prompt.ids) + prompt.max_new_tokens > longest:
            raise DataError(
                f"a prompt of {len(prompt.ids)} tokens and {prompt.max_new_tokens} tokens of answer exceed the {longest} that "
                f"{self.model.id} takes; shorten the prompt, or give fewer max_new_tokens"
            )

    def _new_answers(self) -> Answers:
        return Answers(
            self.model, self.watched, threshold=self.threshold, stop_at_alarm=self.action != "flag",
            on_alarm=self._on_alarm,
        )  # fmt: skip

    # ---- answers of any `generate` ---------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        if self._hooks is not None:
            raise SeamError("this watch is running already; make another one with hw.watch(...)")
        self._hooks = _GenerateHooks(self.model, self._new_answers)
        return self

    def __exit__(self, *exc: object) -> None:
        self._ended, self._hooks = self._hooks, None
        if self._ended is not None:
            self._ended.close()

    def __call__(self, input_ids: Tensor, scores: Any = None, **kwargs: Any) -> Tensor:
        """The stopping criterion of transformers: (batch,) bool, whether the answer ends here."""
        if self._hooks is None:
            raise SeamError("a watch is a stopping criterion only inside `with watch:`, which observes the model")
        return self._hooks.step(input_ids)

    @property
    def answers(self) -> list[WatchedAnswer]:
        """The answers of the last ``generate`` under ``with watch``."""
        hooks = self._hooks or self._ended
        if hooks is None or not hooks.events:
            raise SeamError(
                "no answer was generated; run model.generate(..., stopping_criteria=[watch]) inside `with watch:`"
            )
        return [self._collected(hooks.closed(row)) for row in sorted(hooks.events)]


class _GenerateHooks:
    """Follows a ``generate`` of transformers: the logits of each pass, and the token that was chosen from them."""

    def __init__(self, model: Model, make_answers: Callable[[], Answers]):
        self.events: dict[int, list[TokenScore]] = {}
        self._answers = make_answers()
        self._logits: Tensor | None = None  # (batch, vocabulary), of the last pass
        self._reads_prompt = False  # since the last token
        self._assisted = False  # whether a pass checked several tokens of an answer
        self._tokens = 0  # of the batch at the last one
        self._open = True
        self._stack = ExitStack()
        self._stack.callback(model.hf.register_forward_hook(self._after_pass, with_kwargs=True).remove)
        if self._answers.rows is not None:
            self._stack.enter_context(observe(model, self._answers.rows))

    def close(self) -> None:
        """Remove all hooks; answers that go on end here."""
        self._stack.close()
        self._open = False
        self.events = {row: self.closed(row) for row, events in self.events.items() if events}

    def _after_pass(self, module: Any, args: Any, kwargs: Any, output: Any) -> None:
        given = kwargs.get("input_ids")
        self._reads_prompt |= given is None or given.shape[1] > 1
        cache = kwargs.get("past_key_values")
        if given is not None and output.logits.shape[1] > 1 and cache is not None:
            self._assisted |= int(cache.get_seq_length()) > given.shape[1]  # logits of several tokens, after the prompt
        self._logits = output.logits[:, -1].detach()

    def step(self, input_ids: Tensor) -> Tensor:
        """After each token: which answers end here."""
        logits, (batch, total) = self._logits, input_ids.shape
        if logits is None or len(logits) != batch or self._assisted:
            raise SeamError(
                "the batch of this generation is not that of the model's passes; watch greedy decoding or sampling with one "
                "beam, without an assistant model"
            )
        if self._reads_prompt or total != self._tokens + 1:
            self._refuse_split_prompt()
            self._answers.restart()
            self.events = {row: [] for row in range(batch)}
            for row, ids in enumerate(input_ids[:, :-1].tolist()):
                self._answers.begin(row, Prompt(tuple(ids) or (0,), max_new_tokens=2**31))
        self._tokens, self._reads_prompt = total, False
        chosen = input_ids[:, -1]
        going = [row for row in range(batch) if self._answers[row].finished is None]
        logprobs = logits.float().log_softmax(-1).gather(1, chosen[:, None])[:, 0].tolist()
        tokens = chosen.tolist()
        step = DecodedTokens(going, [tokens[row] for row in going], [logprobs[row] for row in going])
        stop = torch.zeros(batch, dtype=torch.bool, device=input_ids.device)
        for row, event in zip(going, self._answers.step(range(batch), step), strict=True):
            self.events[row].append(event)
            stop[row] = event.finished == "alarm"
        return stop

    def _refuse_split_prompt(self) -> None:
        """A prompt that is read in parts, the last of a single token, looks as if that token were part of the answer."""
        rows = self._answers.rows
        if rows is not None and rows.rows is not None and bool((rows.rows != 1).any()):
            raise SeamError(
                "the prompt was read in parts, and the last part has a single token, which looks like a token of the "
                "answer; choose another prefill_chunk_size"
            )

    def closed(self, row: int) -> list[TokenScore]:
        """The events of an answer, with its end: as it is, or would be if the answer ended here."""
        events = self.events[row]
        return events if events[-1].finished is not None else [*events, self._answers.end(row, only_look=self._open)]


def watch(
    model: Any, detector: str | os.PathLike[str] | Atlas | type[RunningScore] | WatchedScore | None = None, *,
    score: str | None = None, at: float | None = None, risk: float | None = None, threshold: float | None = None,
    action: Action = "flag", on_alarm: Callable[[TokenScore], object] | None = None, abstention: str = ABSTENTION,
) -> Watch:  # fmt: skip
    """Score answers while a model generates them.

    Args:
        model: what `headwise.load` takes or gave.
        detector: an atlas with the study streaming, or its location; the name of a score that needs no fit; or a subclass of
            `RunningScore` of your own. None: the smallest log-probability.
        score: which of the atlas's scores; None: its default.
        at: raise alarms for at most this share of correct answers, such as 0.1 (split conformal, finite-sample).
        risk: raise alarms so that at most this share of the answers without one are wrong.
        threshold: raise alarms for scores above this number, instead.
        action: "flag"; "stop", an alarm ends the answer; "abstain", it ends it and replaces its text.
        on_alarm: called with the event that raises an alarm.
        abstention: the text that replaces an answer.

    Returns:
        A watch: ``stream`` and ``answer`` generate; inside ``with``, it is a stopping criterion of transformers.

    Examples:
        >>> watch = hw.watch(model, "Log-probability, min", threshold=3.0, action="stop")
        >>> watch
        <Watch of planted: Log-probability, min, alarm above 3 (stop)>
        >>> with watch:
        ...     _ = model.generate(**model.encode("where was the river ?"), max_new_tokens=3, stopping_criteria=[watch])
        >>> len(watch.answers[0].tokens)
        3
    """
    if sum(one is not None for one in (at, risk, threshold)) > 1:
        raise DataError("give one of at, risk and threshold")
    few_shot: int | None = None
    chat: bool | None = None
    loaded = model if isinstance(model, Model) else load(model)
    if isinstance(detector, type) and issubclass(detector, RunningScore):
        watched = WatchedScore(detector.name, detector)
    elif isinstance(detector, WatchedScore):
        watched = detector
    elif detector is None or (isinstance(detector, str) and detector in UNFITTED):
        watched = watchable(LOGPROB_MIN if detector is None else str(detector))
    else:
        atlas = detector if isinstance(detector, Atlas) else Atlas.open(os.fspath(detector))
        known = known_scores(atlas)
        refuse_other_model(atlas, STUDY, loaded)
        if score is not None and score not in known:
            raise DataError(f"The atlas has no score {score!r} that can be watched. {did_you_mean(score, known)}")
        watched = known[score] if score is not None else next(iter(known.values()))
        asked = atlas.provenance("answers").parameters
        few_shot, chat = asked["few_shot"], asked["chat"]
    _check_shape(watched, loaded)
    guarantee = None if at is None and risk is None else watched.threshold(at=at, risk=risk)
    return Watch(
        loaded, watched, threshold=threshold if guarantee is None else guarantee.value, guarantee=guarantee, action=action,
        on_alarm=on_alarm, few_shot=few_shot, chat=chat, abstention=abstention,
    )  # fmt: skip


def _check_shape(watched: WatchedScore, model: Model) -> None:
    """A detector whose file was exchanged for that of another model is refused."""
    running = watched.make()
    shape = (model.card.layers, model.card.heads)
    if isinstance(running, RunningDetector) and running.shape is not None and running.shape[1:] != shape:
        raise AtlasError(
            f"the detector of {watched.name!r} is of {running.shape[1]} layers x {running.shape[2]} heads, and {model.id} has "
            f"{shape[0]} x {shape[1]}; build the study again with headwise build --studies {STUDY}"
        )
