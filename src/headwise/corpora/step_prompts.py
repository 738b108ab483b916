"""How a step is put to a model: the main question, the earlier steps with their right answers, and what is asked.

A step that asks for the end of a sentence (its subquestion ends in "...") is an open sentence. The user gives the main
question; the model's own turn is begun with the earlier sentences, complete, and with this one up to its gap:

    user        Ann has 3 pens. With one more, the number of pens is ...
                Complete the sentences.
    assistant   Ann has 3 pens.
                With one more, the number of pens is

and the model goes on from there. Any other step is a question, all in one user turn:

    Ann has 3 pens and Ben has 4. How many have they together?

    Q: How many pens has Ann?
    A: 3
    Q: What is 3 plus 4?
    Answer briefly.

A base model gets the same as plain text, which ends in the open sentence or in "A:". No worked examples are shown: a
small model copies them (see `prompts`). The function of the step is not said. Small models do far more of the open
sentences than of the questions (``docs/studies/function-data.md``).
"""

from __future__ import annotations

from typing import Any

from headwise.corpora.prompts import has_chat
from headwise.corpora.steps import Step

__all__ = ["step_ids", "step_prompt"]

GAP = "..."
INSTRUCTION = "Answer briefly."
OPEN_INSTRUCTION = "Complete the sentences."


def step_prompt(step: Step, *, chat: bool = True) -> str | list[dict[str, str]]:
    """The prompt as a chat, or as a text. A chat whose last turn is the assistant's is to be gone on with."""
    if _is_open(step.subquestion):
        asked = f"{step.question}\n{OPEN_INSTRUCTION}"
        return _chat(asked, _begun(step)) if chat else f"{asked}\n\n{_begun(step)}"
    earlier = [f"Q: {asked}\nA: {answer}" for asked, answer in step.earlier]
    text = f"{step.question}\n\n" + "\n".join([*earlier, f"Q: {step.subquestion}"])
    return _chat(f"{text}\n{INSTRUCTION}") if chat else f"{text}\nA:"


def step_ids(model: Any, step: Step, *, chat: bool | None = None) -> tuple[int, ...]:
    """The prompt as token ids; `chat` None is a chat where the model has a template."""
    chat = has_chat(model) if chat is None else chat
    prompt, most = step_prompt(step, chat=chat), model.card.max_positions
    if isinstance(prompt, str) or prompt[-1]["role"] == "user":
        return tuple(model.ids(prompt, limit=most))
    begun = model.tokenizer(prompt[-1]["content"], add_special_tokens=False, verbose=False)["input_ids"]
    return tuple([*model.ids(prompt[:-1], limit=most), *begun][:most])


def _is_open(subquestion: str) -> bool:
    return subquestion.endswith(GAP)


def _begun(step: Step) -> str:
    """The earlier sentences, complete, and this one up to its gap."""
    earlier = [f"{asked.removesuffix(GAP).rstrip()} {answer.rstrip(' .')}." for asked, answer in step.earlier]
    return "\n".join([*earlier, step.subquestion.removesuffix(GAP).rstrip()])


def _chat(user: str, assistant: str = "") -> list[dict[str, str]]:
    turns = [{"role": "user", "content": user}, {"role": "assistant", "content": assistant}]
    return turns if assistant else turns[:1]
