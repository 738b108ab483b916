"""A loaded model and its last prompt runs: run a prompt, show one head's map, scale heads, score an answer.

    session = LiveSession(headwise.load())
    run = session.run("What is the capital of Norway?", mode="question")
    session.head_map(run["id"], "L12H3", rows=(0, 40), columns=(0, 40))   # one head's map
    session.what_if(run["id"], {"L12H3": 0.0})                            # head off: the answer before and after
    session.score("What is the capital of Norway?", run["answer"], "atlas")

Steps of a run: prefill and decoding (`generation`) where an answer is requested, with the atlas's scores of it after every
token (`answer_scores`); then one forward pass over prompt and answer, which gives every head's small map (`pooled_maps`), the
profile statistics, and every q and k (`AttentionStore`), so that a head's map needs no other pass. Results are JSON
(`response_schemas`).

Methods that run the model must be called from one thread at a time. `validate`, and `head_map` with ``run_model=False``, do
not, and may be called from any thread. This module knows no web server.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from headwise.atlas import Atlas
from headwise.core.cancellation import CancelToken
from headwise.core.dims import head_name, parse_head
from headwise.core.errors import DataError
from headwise.core.provenance import public_name
from headwise.corpora.prompts import PROMPT_MODES, has_chat_template
from headwise.corpora.sequences import delimiter_ids
from headwise.instruments.profile import Profile
from headwise.kernels.attention import Attention
from headwise.live import generation as gen
from headwise.live.answer_scores import AnswerScores, AtlasPath, AtlasScores, LiveScore
from headwise.live.effects import (
    HeadFactors,
    NextTokenReading,
    controls_at_least,
    draw_control,
    effect_of,
    read_factors,
    scale_interventions,
    stored_effects,
)  # fmt: skip
from headwise.live.generation import (
    Generation,
    LivePrompt,
    OnEvent,
    ends_of,
    generate,
    logprobs_of,
    most_likely,
    read_prompt,
)
from headwise.live.pooled_maps import (
    CAPACITY,
    AttentionStore,
    CancellationCheck,
    LayerReached,
    SmallMaps,
    Span,
    StoreAttention,
    check_span,
    head_window,
    segment_starts,
)
from headwise.live.response_schemas import (
    AnswerScore,
    ControlEffect,
    MapWindow,
    RunResult,
    ScoreChoice,
    StoredEffect,
    WhatIfResult,
    pack_array,
)
from headwise.live.runs import PromptRun, RunHistory, continuation, run_result
from headwise.model import Model
from headwise.seam import Instrument, Intervention, Observation, Structure, observe
from headwise.studies.decoding import Ids, PrefixCachedDecoder
from headwise.watching.generation import Prompt

SMALL_MAP_CELLS, LARGE_MAP_CELLS = 64, 512  # per side
MAX_ANSWER_TOKENS = 128
DEFAULT_DRAWS, MAX_DRAWS = 5, 20


class LiveSession:
    """A model, its last prompt runs, and the detectors of its atlases.

    Args:
        model: from `headwise.load`.
        limit: maximum tokens of a prompt.
        capacity: bytes of queries and keys that are stored, so that a head's map needs no other forward pass.

    Examples:
        >>> session = LiveSession(model)
        >>> run = session.run("the old river was the old river", mode="text", max_new_tokens=4)
        >>> [token["text"] for token in run["tokens"] if token["generated"]]  # the answer
        ['river', 'river', 'river', 'river']
        >>> session.what_if(run["id"], {"L0H3": 0.0}, draws=2)["effect"]["kl"] > 0  # with two random controls
        True
    """

    def __init__(self, model: Model, *, limit: int = gen.MAX_PROMPT_TOKENS, capacity: int = CAPACITY):
        self.model, self.limit = model, limit
        self.store = AttentionStore(capacity)
        self.history = RunHistory(self.store.remove)
        self.atlases = AtlasScores(model)
        self._decoder = PrefixCachedDecoder(model)
        self._structure = Structure(model)
        self._delimiters = delimiter_ids(model.tokenizer)

    def info(self) -> dict[str, Any]:
        """The model, its limits and the available prompt modes."""
        card = self.model.card
        return {
            "model": public_name(self.model.id),
            "layers": card.layers,
            "heads": card.heads,
            "device": str(self.model.device),
            "modes": [mode for mode in PROMPT_MODES if mode != "chat" or has_chat_template(self.model)],
            "tokens": gen.max_prompt_tokens(self.model, MAX_ANSWER_TOKENS, self.limit),
            "answer_tokens": MAX_ANSWER_TOKENS,
            "draws": DEFAULT_DRAWS,
        }

    def scoring_unavailable(self, atlas: AtlasPath) -> str | None:
        """The reason why an atlas cannot score answers; None where it can."""
        return self.atlases.unavailable(atlas)

    def score_choices(self, atlas: AtlasPath) -> tuple[list[ScoreChoice], str | None]:
        """The atlas's scores of an answer that is being generated, the default first; or the reason why there are none."""
        return self.atlases.choices(atlas)

    def validate(
        self, text: str, *, mode: str = "question", answer: bool = True, max_new_tokens: int = 32,
        changes: Mapping[str, float] | None = None, atlas: AtlasPath | None = None,
    ) -> tuple[LivePrompt, HeadFactors, int]:  # fmt: skip
        """The arguments of `run`, checked without running the model; callable from any thread."""
        factors = read_factors(changes or {}, self.model.card)
        limit = self._answer_limit(max_new_tokens) if answer else 0
        few_shot, chat = self.atlases.prompt_format(atlas) if mode == "question" else (None, None)
        prompt = read_prompt(self.model, text, mode, reserved=limit, limit=self.limit, few_shot=few_shot, chat=chat)
        return prompt, factors, limit

    def run(
        self, text: str, *, mode: str = "question", answer: bool = True, max_new_tokens: int = 32,
        changes: Mapping[str, float] | None = None, atlas: AtlasPath | None = None, cancel: CancelToken | None = None,
        on_event: OnEvent | None = None,
    ) -> RunResult:  # fmt: skip
        """Run a prompt (and generate an answer) while observing every head.

        Args:
            text: the prompt.
            mode: "question", "chat" or "text": the prompt format.
            answer: whether an answer is generated.
            max_new_tokens: of the answer.
            changes: head -> factor, applied from the start.
            atlas: its question format is used, so that answers can be scored, and its scores, where it has some.
            cancel: cancels from another thread.
            on_event: called with every token when it is there, in the thread that runs the model.

        Returns:
            Tokens, every head's small map and statistics, the most likely next tokens, the answer.
        """
        cancel, start = cancel or CancelToken(), time.monotonic()
        prompt, factors, limit = self.validate(
            text, mode=mode, answer=answer, max_new_tokens=max_new_tokens, changes=changes, atlas=atlas
        )
        name = secrets.token_urlsafe(9)
        scores = self._scores_for(prompt, atlas)
        next_token, generated = self._answer(prompt, factors, limit, scores, cancel, on_event)
        small, profile = SmallMaps(SMALL_MAP_CELLS), Profile(self._delimiters)
        cancel.begin("observing every head")
        try:
            with self._observe(cancel, *scale_interventions(factors), small, profile, StoreAttention(self.store, name)):
                last = self._forward(prompt.ids + generated.ids)
        except BaseException:
            self.store.remove(name)
            raise
        run = PromptRun(name, prompt, factors, limit, last if next_token is None else next_token, generated, scores)
        self.history.add(run)
        return run_result(self.model, run, small.result(), profile.result(), time.monotonic() - start)

    def head_map(
        self, run: str, head: str, *, rows: Span | None = None, columns: Span | None = None, size: int = LARGE_MAP_CELLS,
        cancel: CancelToken | None = None, run_model: bool = True,
    ) -> MapWindow | None:  # fmt: skip
        """One head's attention map, whole or a window of it.

        Args:
            run: the id of a run.
            head: such as "L12H3".
            rows: first query, and the one after the last.
            columns: first key, and the one after the last.
            size: maximum cells per side; a larger map is max-pooled.
            cancel: cancels from another thread.
            run_model: whether the model may be run where the layer is no longer stored.

        Returns:
            The map; None where a forward pass would be needed and ``run_model`` is False.
        """
        found, (layer, index) = self.history[run], self._head_index(head)
        tokens = len(found.ids)
        if not 1 <= size <= 2 * LARGE_MAP_CELLS:
            raise DataError(f"a map cannot have {size} cells per side; give 1 to {2 * LARGE_MAP_CELLS}")
        rows, columns = check_span(rows, tokens, "rows"), check_span(columns, tokens, "columns")
        attention = self.store.get(run, layer)
        if attention is None and not run_model:
            return None
        if attention is None:
            attention = self._recompute(found, layer, cancel or CancelToken())
        weights = head_window(attention, index, rows, columns, size)
        return {
            "run": run,
            "head": head_name(layer, index),
            "rows": list(rows),
            "columns": list(columns),
            "row_starts": segment_starts(*rows, size)[:-1],
            "column_starts": segment_starts(*columns, size)[:-1],
            "weights": pack_array(weights),
            "exact": max(rows[1] - rows[0], columns[1] - columns[0]) <= size,
        }

    def what_if(
        self, run: str, changes: Mapping[str, float], *, draws: int = DEFAULT_DRAWS, seed: int = 0,
        atlas: AtlasPath | None = None, cancel: CancelToken | None = None, on_event: OnEvent | None = None,
    ) -> WhatIfResult:  # fmt: skip
        """Answer and next token with heads scaled, compared with the unchanged model and with random heads.

        Args:
            run: the id of a run.
            changes: head -> factor; 0 ablates the head.
            draws: number of random sets of heads, of the same size, as a control.
            seed: of the draws.
            atlas: what its study `causal` measured about these heads is added.
            cancel: cancels from another thread.
            on_event: called with every token when it is there, in the thread that runs the model.

        Returns:
            Before, after, their distance, the distances of the random heads, and the atlas's effects of the scaled heads.
        """
        cancel, start, found = cancel or CancelToken(), time.monotonic(), self.history[run]
        factors = read_factors(changes, self.model.card)
        if not factors:
            raise DataError('no head was changed; give at least one with a factor other than 1, such as {"L3H7": 0}')
        if not 0 <= draws <= MAX_DRAWS:
            raise DataError(f"{draws} random draws are not possible; give 0 to {MAX_DRAWS}")
        before, original = self._unchanged(found, cancel, on_event)
        after, changed = self._changed(
            found, factors, original, cancel, "with the heads scaled", answers=True, on_event=on_event
        )
        effect = effect_of(before, after)
        controls: list[ControlEffect] = []
        for draw in range(draws):
            drawn = draw_control(factors, self.model.card, seed + draw)
            if drawn is not None:  # None: too few other heads
                stage = f"random heads, draw {draw + 1} of {draws}"
                control, _ = self._changed(found, drawn, original, cancel, stage, answers=False)
                controls.append({"heads": drawn, **effect_of(before, control)})
        return {
            "run": run,
            "changes": factors,
            "before": continuation(self.model, before.next, original),
            "after": continuation(self.model, after.next, changed),
            "effect": effect,
            "logprob": before.logprob,
            "logprob_after": after.logprob,
            "controls": controls,
            "controls_at_least": controls_at_least(effect, controls),
            "stored": self._stored(factors, atlas),
            "seconds": time.monotonic() - start,
        }

    def score(
        self, question: str, answer: str | None, atlas: AtlasPath, *, score: str | None = None,
        cancel: CancelToken | None = None,
    ) -> AnswerScore:  # fmt: skip
        """The probability that an answer is wrong, by the atlas's detector, and each head's contribution to it.

        Args:
            question: the question.
            answer: the answer; None: the model generates it first.
            atlas: whose detector is used.
            score: which of its scores; None: its default.
            cancel: cancels from another thread.

        Returns:
            The score, with a map of each head's contribution.
        """
        cancel = cancel or CancelToken()
        self.validate(f"{question} {answer or ''}", mode="question", max_new_tokens=MAX_ANSWER_TOKENS, atlas=atlas)
        cancel.begin("scoring the answer")
        with self._observe(cancel):
            return self.atlases.score(atlas, question, answer, score)

    # ---- forward passes ---------------------------------------------------------------------------------------------

    def _observe(self, cancel: CancelToken, *observers: Instrument | Intervention) -> Observation:
        return observe(self._structure, CancellationCheck(cancel, self.model.card.layers), *observers)

    def _forward(self, ids: Ids) -> Tensor:
        """One forward pass over whole sequences; (vocabulary,) log-probabilities of the next token."""
        keep = {"logits_to_keep": 1} if gen.supports_logits_to_keep(self.model) else {}
        out = self.model(torch.tensor([ids], device=self.model.device), use_cache=False, **keep)
        return out.logits[0, -1].float().log_softmax(-1).cpu()

    def _scores_for(self, prompt: LivePrompt, atlas: AtlasPath | None) -> dict[str, LiveScore]:
        """The scores of an answer to this prompt: calibrated ones for questions alone."""
        scores = self.atlases.scores(atlas)
        return scores if prompt.mode == "question" else {name: one.uncalibrated() for name, one in scores.items()}

    def _stored(self, factors: HeadFactors, atlas: AtlasPath | None) -> list[StoredEffect]:
        """What the atlas's study `causal` measured about these heads; nothing where it has none of this model."""
        if atlas is None:
            return []
        opened = Atlas.open(atlas)
        if "causal" not in opened or opened.provenance("causal").model.get("digest") != self.model.identity()["digest"]:
            return []
        return stored_effects(opened["causal"], factors)

    def _answer(
        self, prompt: LivePrompt, factors: HeadFactors, limit: int, scores: Mapping[str, LiveScore], cancel: CancelToken,
        on_event: OnEvent | None, part: str = "answer",
    ) -> tuple[Tensor | None, Generation]:  # fmt: skip
        """The next-token distribution at the prompt's end, and the answer; no forward pass where none is requested."""
        if not limit:
            return None, Generation((), False, [], [], {})
        ends = ends_of(self.model, prompt.mode)
        running = AnswerScores(self.model, scores, Prompt(prompt.ids, limit, ends=ends))
        with self._observe(cancel, *scale_interventions(factors), *running.instruments):
            cancel.begin("reading the prompt")
            decoding = self._decoder.begin([prompt.ids], len(prompt.ids) + limit, most_likely)
            next_token = logprobs_of(decoding)
            cancel.begin("generating the answer")
            return next_token, generate(
                self.model, decoding, limit, ends, cancel, scores=running, on_event=on_event, part=part
            )

    def _recompute(self, run: PromptRun, layer: int, cancel: CancelToken) -> Attention:
        """A layer's attention, by a forward pass that stops at that layer."""
        instrument = StoreAttention(self.store, run.id, only=layer)
        cancel.begin("recomputing the layer")
        with self._observe(cancel, *scale_interventions(run.changes), instrument), suppress(LayerReached):
            self._forward(run.ids)
        if instrument.found is None:
            raise DataError(f"layer {layer} has no attention map")
        return instrument.found

    def _unchanged(
        self, run: PromptRun, cancel: CancelToken, on_event: OnEvent | None
    ) -> tuple[NextTokenReading, Generation]:
        """The unchanged model on a run's prompt: from the run itself, unless heads were scaled in it."""
        if not run.changes:
            return run.reading(), run.generation
        next_token, generated = self._answer(run.prompt, {}, run.limit, run.scores, cancel, on_event, "unchanged")
        if next_token is None:
            with self._observe(cancel):
                next_token = self._forward(run.prompt.ids)
        return replace(run, changes={}, next=next_token, generation=generated).reading(), generated

    def _changed(
        self, run: PromptRun, factors: HeadFactors, original: Generation, cancel: CancelToken, stage: str, *,
        answers: bool, on_event: OnEvent | None = None,
    ) -> tuple[NextTokenReading, Generation]:  # fmt: skip
        """The changed model on the same prompt: its own answer, then how likely it finds the original one."""
        prompt, limit = run.prompt, run.limit if answers else 0
        ends = ends_of(self.model, prompt.mode)
        scores = run.scores if limit else {}
        running = AnswerScores(self.model, scores, Prompt(prompt.ids, max(limit, 1), ends=ends))
        with self._observe(cancel, *scale_interventions(factors), *running.instruments):
            cancel.begin(stage)
            longest = len(prompt.ids) + max(limit, len(original.ids))
            decoding = self._decoder.begin([prompt.ids], longest, most_likely)
            given = decoding.fork()
            next_token = logprobs_of(decoding)
            generated = generate(
                self.model, decoding, limit, ends, cancel, scores=running, on_event=on_event, part="changed"
            )
            answer = given.teacher_force(original.ids).log_softmax(-1).cpu() if original.ids else next_token[None][:0]
        return NextTokenReading(next_token, answer, original.ids), generated

    # ---- arguments --------------------------------------------------------------------------------------------------

    def _answer_limit(self, max_new_tokens: int) -> int:
        if not 1 <= max_new_tokens <= MAX_ANSWER_TOKENS:
            raise DataError(f"an answer cannot have {max_new_tokens} tokens; give 1 to {MAX_ANSWER_TOKENS}")
        return max_new_tokens

    def _head_index(self, head: str) -> tuple[int, int]:
        index = parse_head(head)
        self._structure.require_heads([index])
        return index
