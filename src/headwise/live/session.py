"""A loaded model that answers a person's questions about its heads.

    session = Session(headwise.load())
    look = session.look("What is the capital of Norway?", mode="question")
    session.head(look["id"], "L12H3", rows=(0, 40), columns=(0, 40))      # one head's map, large
    session.what_if(look["id"], {"L12H3": 0.0})                          # switched off: the answer before and after
    session.score("What is the capital of Norway?", look["answer"], "atlas")

Steps of a look: the prompt is read and answered (`speaking`), if an answer is wanted; then prompt and answer are read
together in one pass, from which come every head's small map (`small_maps`), the statistics of the profile, and q and k of
every layer (`keeping`), so that opening a head large needs no other pass. Results are dicts for the wire (`shapes`).

What runs the model must be called from one thread at a time. `check` never does, and `head` with ``runs=False`` neither:
they may be called from any thread. This module knows no web server.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor

from headwise.core.cancellation import CancelToken
from headwise.core.dims import head_name, parse_head
from headwise.core.errors import DataError
from headwise.corpora import delimiter_ids, has_chat_template
from headwise.instruments import Profile
from headwise.kernels import Attention
from headwise.live import prompts
from headwise.live.effects import Changes, Reading, as_large, draw, effect, read_changes, scales
from headwise.live.keeping import ROOM, Enough, Keep, Kept
from headwise.live.looks import Look, Looks, side, tell
from headwise.live.packing import packed
from headwise.live.prompts import Prompt, ends_of, read_prompt
from headwise.live.scores import Scores
from headwise.live.shapes import Control, HeadMap, LookResult, Scored, WhatIf
from headwise.live.small_maps import SmallMapReadings, stretches
from headwise.live.speaking import Said, begin, follow, keeps_logits, speak
from headwise.live.watch import Watch
from headwise.live.windows import Span, head_window, read_span
from headwise.model import Model
from headwise.seam import Instrument, Intervention, Observation, Structure, observe
from headwise.studies.answers.decoding import Ids

__all__ = ["Session"]

SMALL, LARGE = 64, 512  # pixels of a map's side
LONGEST_ANSWER = 128  # tokens
DRAWS, MOST_DRAWS = 5, 20

Place = str | os.PathLike[str]


class Session:
    """A model, the last looks at it, and the detectors of atlases of it.

    Args:
        model: what `headwise.load` gave.
        limit: tokens that a prompt may have.
        room: bytes of queries and keys that are kept, so that a head is opened without another pass.

    Examples:
        >>> session = Session(model)
        >>> look = session.look("the old river was the old river", mode="text", max_new_tokens=4)
        >>> [token["text"] for token in look["tokens"] if token["generated"]]  # what it answered
        ['river', 'river', 'river', 'river']
        >>> session.what_if(look["id"], {"L0H3": 0.0}, draws=2)["effect"]["kl"] > 0  # beside two random heads
        True
    """

    def __init__(self, model: Model, *, limit: int = prompts.LIMIT, room: int = ROOM):
        self.model, self.limit = model, limit
        self.kept = Kept(room)
        self.looks = Looks(self.kept.forget)
        self.scores = Scores(model)
        self._structure = Structure(model)
        self._delimiters = delimiter_ids(model.tokenizer)

    def facts(self) -> dict[str, Any]:
        """What a page needs to know of the model before anything was typed."""
        card = self.model.card
        return {
            "model": self.model.id,
            "layers": card.layers,
            "heads": card.heads,
            "device": str(self.model.device),
            "modes": [mode for mode in prompts.MODES if mode != "chat" or has_chat_template(self.model)],
            "tokens": prompts.longest(self.model, LONGEST_ANSWER, self.limit),
            "answer_tokens": LONGEST_ANSWER,
            "draws": DRAWS,
        }

    def why_not(self, atlas: Place) -> str | None:
        """Why answers cannot be scored by an atlas; None where they can."""
        return self.scores.why_not(atlas)

    def check(
        self, text: str, *, mode: str = "question", answer: bool = True, max_new_tokens: int = 32,
        changes: Mapping[str, float] | None = None, atlas: Place | None = None,
    ) -> tuple[Prompt, Changes, int]:  # fmt: skip
        """What `look` would do, without doing it: a DataError where it would refuse. May be called from any thread."""
        changed = read_changes(changes or {}, self.model.card)
        limit = self._limit(max_new_tokens) if answer else 0
        few_shot, chat = self.scores.asked(atlas) if mode == "question" else (None, None)
        prompt = read_prompt(self.model, text, mode, room=limit, limit=self.limit, few_shot=few_shot, chat=chat)
        return prompt, changed, limit

    def look(
        self, text: str, *, mode: str = "question", answer: bool = True, max_new_tokens: int = 32,
        changes: Mapping[str, float] | None = None, atlas: Place | None = None, halt: CancelToken | None = None,
    ) -> LookResult:  # fmt: skip
        """Let the model read a text (and answer it), and see every head.

        Args:
            text: what was typed.
            mode: "question", "chat" or "text": how it is put to the model.
            answer: whether it answers.
            max_new_tokens: of the answer.
            changes: head -> factor, changed from the start.
            atlas: tells how questions are put, so that answers can be scored.
            halt: stops it from another thread.

        Returns:
            Tokens, every head's small map and statistics, the likeliest next tokens, the answer.
        """
        halt, start = halt or CancelToken(), time.monotonic()
        prompt, changed, limit = self.check(
            text, mode=mode, answer=answer, max_new_tokens=max_new_tokens, changes=changes, atlas=atlas
        )
        name = secrets.token_urlsafe(9)
        next_token, said = self._answered(prompt, changed, limit, halt)
        small, profile = SmallMapReadings(SMALL), Profile(self._delimiters)
        halt.begin("reading every head")
        try:
            with self._watched(halt, *scales(changed), small, profile, Keep(self.kept, name)):
                last = self._pass(prompt.ids + said.ids)
        except BaseException:
            self.kept.forget(name)
            raise
        look = Look(name, prompt, changed, limit, last if next_token is None else next_token, said)
        self.looks.add(look)
        return tell(self.model, look, small.result(), profile.result(), time.monotonic() - start)

    def head(
        self, look: str, head: str, *, rows: Span | None = None, columns: Span | None = None, size: int = LARGE,
        halt: CancelToken | None = None, runs: bool = True,
    ) -> HeadMap | None:  # fmt: skip
        """One head's map, whole or a window of it.

        Args:
            look: the id of a look.
            head: such as "L12H3".
            rows: first query, and the one after the last.
            columns: first key, and the one after the last.
            size: cells a side, at most; a larger map is pooled by its largest weights.
            halt: stops it from another thread.
            runs: whether the model may be run where the look is no longer kept whole.

        Returns:
            The map; None where a pass would be needed and ``runs`` is False.
        """
        found, (layer, place) = self.looks[look], self._place(head)
        tokens = len(found.ids)
        if not 1 <= size <= 2 * LARGE:
            raise DataError(f"a map of {size} cells a side was asked for; give 1 to {2 * LARGE}")
        rows, columns = read_span(rows, tokens, "rows"), read_span(columns, tokens, "columns")
        attention = self.kept.get(look, layer)
        if attention is None and not runs:
            return None
        if attention is None:
            attention = self._read_again(found, layer, halt or CancelToken())
        weights = head_window(attention, place, rows, columns, size)
        return {
            "look": look,
            "head": head_name(layer, place),
            "rows": list(rows),
            "columns": list(columns),
            "row_starts": stretches(*rows, size)[:-1],
            "column_starts": stretches(*columns, size)[:-1],
            "weights": packed(weights),
            "exact": max(rows[1] - rows[0], columns[1] - columns[0]) <= size,
        }

    def what_if(
        self,
        look: str,
        changes: Mapping[str, float],
        *,
        draws: int = DRAWS,
        seed: int = 0,
        halt: CancelToken | None = None,
    ) -> WhatIf:
        """The answer and the next token with heads changed, beside the model as it is, and random heads' effects.

        Args:
            look: the id of a look.
            changes: head -> factor: 0 switches it off.
            draws: as many random sets of heads, of the same size, for control.
            seed: of the draws.
            halt: stops it from another thread.

        Returns:
            Before, after, how far apart they are, and the same of the random heads.
        """
        halt, start, found = halt or CancelToken(), time.monotonic(), self.looks[look]
        changed = read_changes(changes, self.model.card)
        if not changed:
            raise DataError('no head was changed; give at least one with a factor other than 1, such as {"L3H7": 0}')
        if not 0 <= draws <= MOST_DRAWS:
            raise DataError(f"{draws} random draws were asked for; give 0 to {MOST_DRAWS}")
        before, said = self._as_it_is(found, halt)
        after, answered = self._changed(found, changed, said, halt, "with the heads changed", speaks=True)
        moved = effect(before, after)
        controls = [self._control(found, changed, before, said, seed + n, n, draws, halt) for n in range(draws)]
        drawn = [control for control in controls if control is not None]
        return {
            "look": look,
            "changes": changed,
            "before": side(self.model, before.next, said),
            "after": side(self.model, after.next, answered),
            "effect": moved,
            "logprob": before.logprob,
            "logprob_after": after.logprob,
            "controls": drawn,
            "as_large": as_large(moved, drawn),
            "seconds": time.monotonic() - start,
        }

    def score(self, question: str, answer: str | None, atlas: Place, *, halt: CancelToken | None = None) -> Scored:
        """The probability that an answer is wrong, by the atlas's detector, and what every head added to it.

        Args:
            question: what was asked.
            answer: what was answered; None: the model answers first.
            atlas: whose detector it is.
            halt: stops it from another thread.

        Returns:
            The score, with a map of what every head added.
        """
        halt = halt or CancelToken()
        self.check(f"{question} {answer or ''}", mode="question", max_new_tokens=LONGEST_ANSWER, atlas=atlas)
        halt.begin("scoring the answer")
        with self._watched(halt):
            return self.scores.score(atlas, question, answer)

    # ---- passes -----------------------------------------------------------------------------------------------------

    def _watched(self, halt: CancelToken, *watchers: Instrument | Intervention) -> Observation:
        return observe(self._structure, Watch(halt, self.model.card.layers), *watchers)

    def _pass(self, ids: Ids) -> Tensor:
        """One pass over whole sequences, for what instruments see of it; (vocabulary,) of the token that follows."""
        few = {"logits_to_keep": 1} if keeps_logits(self.model) else {}
        out = self.model(torch.tensor([ids], device=self.model.device), use_cache=False, **few)
        return out.logits[0, -1].float().log_softmax(-1).cpu()

    def _answered(self, prompt: Prompt, changes: Changes, limit: int, halt: CancelToken) -> tuple[Tensor | None, Said]:
        """The next-token distribution at the prompt's end, and what was said; without an answer no pass is made."""
        if not limit:
            return None, Said((), False, [])
        with self._watched(halt, *scales(changes)):
            halt.begin("reading the prompt")
            state = begin(self.model, prompt.ids)
            halt.begin("answering")
            return state.logprobs, speak(self.model, state, limit, ends_of(self.model, prompt.mode), halt)

    def _read_again(self, look: Look, layer: int, halt: CancelToken) -> Attention:
        """A layer's attention, by a pass that ends at that layer."""
        keep = Keep(self.kept, look.id, only=layer)
        halt.begin("reading the layer again")
        with self._watched(halt, *scales(look.changes), keep), suppress(Enough):
            self._pass(look.ids)
        if keep.found is None:
            raise DataError(f"layer {layer} has no attention that could be shown")
        return keep.found

    def _as_it_is(self, look: Look, halt: CancelToken) -> tuple[Reading, Said]:
        """The unchanged model on a look's prompt: from the look itself, unless heads were changed in it."""
        if not look.changes:
            return look.reading(), look.said
        next_token, said = self._answered(look.prompt, {}, look.limit, halt)
        if next_token is None:
            with self._watched(halt):
                next_token = self._pass(look.prompt.ids)
        return Look("", look.prompt, {}, look.limit, next_token, said).reading(), said

    def _changed(
        self, look: Look, changes: Changes, original: Said, halt: CancelToken, stage: str, *, speaks: bool
    ) -> tuple[Reading, Said]:
        """The changed model on the same prompt and the original answer; then what it says itself."""
        with self._watched(halt, *scales(changes)):
            halt.begin(stage)
            state = begin(self.model, look.prompt.ids)
            answer = follow(self.model, state, original.ids) if original.ids else state.logprobs[None][:0]
            limit = look.limit if speaks else 0
            said = speak(self.model, state, limit, ends_of(self.model, look.prompt.mode), halt)
        return Reading(state.logprobs, answer, original.ids), said

    def _control(
        self,
        look: Look,
        changes: Changes,
        before: Reading,
        said: Said,
        seed: int,
        number: int,
        of: int,
        halt: CancelToken,
    ) -> Control | None:
        """One draw of other heads; None where there are too few."""
        drawn = draw(changes, self.model.card, seed)
        if drawn is None:
            return None
        after, _ = self._changed(look, drawn, said, halt, f"random heads, draw {number + 1} of {of}", speaks=False)
        return {"heads": drawn, **effect(before, after)}

    # ---- what is asked for ------------------------------------------------------------------------------------------

    def _limit(self, max_new_tokens: int) -> int:
        if not 1 <= max_new_tokens <= LONGEST_ANSWER:
            raise DataError(f"an answer of {max_new_tokens} tokens was asked for; give 1 to {LONGEST_ANSWER}")
        return max_new_tokens

    def _place(self, head: str) -> tuple[int, int]:
        place = parse_head(head)
        self._structure.require_heads([place])
        return place
