"""Prompts for questions and for steps, as text, as a chat and as token ids.

A model with a chat template gets one user turn with the instruction, the examples (if any) and the question; an example
as an assistant turn would put words into the model's mouth. A base model gets the same as plain text:

    chat    user: Give a short answer to the question. / Question: ...                assistant: It is Paris.
    plain   Question: ... / Answer: ... / Question: ... / Answer:                      Paris

A question with a `context` follows its text. Word problems (`numeric`) ask for a short reasoning that ends in "The answer
is 18." The examples are ours, are not among the packaged questions, and are the same for every question, so prompts share
a prefix.

A step whose subquestion ends in "..." is an open sentence: the assistant's turn is pre-filled with the earlier sentences,
complete, and with this one up to its gap, and the model continues it. Other steps are questions in one user turn:

    user        Ann has 3 pens. With one more, the number of pens is ...          Ann has 3 pens and Ben has 4. ...
                Complete the sentences.                                            Q: How many pens has Ann?
    assistant   Ann has 3 pens.                                                    A: 3
                With one more, the number of pens is                               Q: What is 3 plus 4?

Steps show no worked examples, because a small model copies them, and do not name their function. Small models complete
far more open sentences than they answer questions (``docs/studies/function-data.md``).
"""

from __future__ import annotations

from typing import Any

from headwise.core.errors import DataError, did_you_mean
from headwise.corpora.questions import Question
from headwise.corpora.steps import Step

INSTRUCTION = "Give a short answer to the question."
FROM_TEXT = "Give a short answer to the question about the text."
WORD_PROBLEM = 'Solve the problem in a few short steps. End with "The answer is" and the number.'

EXAMPLES = (
    ("Which season comes after spring?", "Summer"),
    ('Who is the main character of the novel "Robinson Crusoe"?', "Robinson Crusoe"),
    ("How many wheels does a tricycle have?", "3"),
    ("Which gas makes bread dough rise?", "Carbon dioxide"),
    ("In which country is the city of Bordeaux?", "France"),
)
PROBLEMS = (
    (
        "Tom has 3 boxes with 4 pens each and loses 2 pens. How many pens are left?",
        "3 boxes with 4 pens are 3 x 4 = 12 pens. 12 - 2 = 10. The answer is 10.",
    ),
    (
        "A ticket costs $6 and a drink half as much. How much are 2 tickets and 2 drinks?",
        "A drink costs 6 / 2 = $3. 2 x 6 + 2 x 3 = 18. The answer is 18.",
    ),
    (
        "Ann reads 12 pages a day. In how many days does she read a book of 60 pages?",
        "60 pages at 12 pages a day take 60 / 12 = 5 days. The answer is 5.",
    ),
)


def default_few_shot(chat: bool) -> int:
    """The number of examples: none in a chat, five before a plain question.

    Measured with the default model on 120 packaged questions: it copies examples inside a user turn, so that with 0, 1, 3
    and 5 of them 39, 28, 25 and 20 % of its answers are correct; as plain text, with 3 and 5 examples, 26 and 33 %.
    """
    return 0 if chat else 5


def has_chat_template(model: Any) -> bool:
    """Whether the model's tokenizer has a chat template."""
    return bool(getattr(model.tokenizer, "chat_template", None))


def question_prompt(question: Question, *, few_shot: int, chat: bool) -> str | list[dict[str, str]]:
    """The prompt as a text, or as a chat of one user turn."""
    examples = PROBLEMS if question.numeric else EXAMPLES
    if not 0 <= few_shot <= len(EXAMPLES):
        raise DataError(f"0 to {len(EXAMPLES)} examples can be shown before a question, not {few_shot}")
    parts = [f"Question: {asked}\nAnswer: {answer}" for asked, answer in examples[:few_shot]]
    if question.context:
        parts.append(f"Text: {question.context}")
    parts.append(f"Question: {question.question}" + ("\nAnswer:" if few_shot or not chat else ""))
    if chat or not few_shot:
        parts.insert(0, WORD_PROBLEM if question.numeric else FROM_TEXT if question.context else INSTRUCTION)
    text = "\n\n".join(parts)
    return [{"role": "user", "content": text}] if chat else text


def prompt_ids(
    model: Any, question: Question, *, few_shot: int | None = None, chat: bool | None = None, limit: int | None = None
) -> tuple[int, ...]:
    """The prompt as token ids, at most `limit`, or as many as the context; `chat` None: if the model has a template."""
    chat = has_chat_template(model) if chat is None else chat
    shots = default_few_shot(chat) if few_shot is None else few_shot
    limit = model.card.max_positions if limit is None else limit
    return tuple(model.ids(question_prompt(question, few_shot=shots, chat=chat), limit=limit))


PROMPT_MODES = ("question", "chat", "text")


def typed_prompt_ids(
    model: Any, text: str, mode: str, *, context: str = "", few_shot: int | None = None, chat: bool | None = None,
    limit: int | None = None,
) -> tuple[int, ...]:  # fmt: skip
    """What somebody typed, as token ids: as a question in the format above, as a user's turn, or as a text to be continued."""
    if mode not in PROMPT_MODES:
        raise DataError(f"{mode!r} is no mode of a prompt. {did_you_mean(mode, PROMPT_MODES)}")
    if not text.strip():
        raise DataError("the prompt is empty; give a question or a text")
    if mode == "question":
        asked = Question("asked", text.strip(), (), context=context)
        return prompt_ids(model, asked, few_shot=few_shot, chat=chat, limit=limit)
    if mode == "chat" and not has_chat_template(model):
        raise DataError(f"{model.id} has no chat template; choose the mode question or text")
    return tuple(model.ids([{"role": "user", "content": text}] if mode == "chat" else text, limit=limit))


def answer_ids(model: Any, answer: str, *, chat: bool) -> tuple[int, ...]:
    """A known answer, as the tokens the model would have generated; with a leading space after a plain prompt."""
    text = answer if chat else f" {answer}"
    return tuple(model.tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]) if answer else ()


GAP = "..."
STEP_INSTRUCTION = "Answer briefly."
COMPLETION_INSTRUCTION = "Complete the sentences."


def step_prompt(step: Step, *, chat: bool = True) -> str | list[dict[str, str]]:
    """The prompt as a chat, or as a text. If the last turn is the assistant's, the model continues it."""
    if step.subquestion.endswith(GAP):
        asked, prefill = f"{step.question}\n{COMPLETION_INSTRUCTION}", _prefill(step)
        if not chat:
            return f"{asked}\n\n{prefill}"
        return [{"role": "user", "content": asked}, {"role": "assistant", "content": prefill}]
    earlier = [f"Q: {asked}\nA: {answer}" for asked, answer in step.earlier]
    text = f"{step.question}\n\n" + "\n".join([*earlier, f"Q: {step.subquestion}"])
    return [{"role": "user", "content": f"{text}\n{STEP_INSTRUCTION}"}] if chat else f"{text}\nA:"


def step_ids(model: Any, step: Step, *, chat: bool | None = None) -> tuple[int, ...]:
    """The prompt as token ids, truncated to the model's context; `chat` None: a chat if the model has a template."""
    chat = has_chat_template(model) if chat is None else chat
    prompt, limit = step_prompt(step, chat=chat), model.card.max_positions
    if isinstance(prompt, str) or prompt[-1]["role"] == "user":
        return tuple(model.ids(prompt, limit=limit))
    prefill = model.tokenizer(prompt[-1]["content"], add_special_tokens=False, verbose=False)["input_ids"]
    return tuple([*model.ids(prompt[:-1], limit=limit), *prefill][:limit])


def _prefill(step: Step) -> str:
    """The earlier sentences, complete, and this one up to its gap."""
    earlier = [f"{asked.removesuffix(GAP).rstrip()} {answer.rstrip(' .')}." for asked, answer in step.earlier]
    return "\n".join([*earlier, step.subquestion.removesuffix(GAP).rstrip()])
