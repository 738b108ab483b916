"""How a question is put to a model, so that it answers in a few words.

A model with a chat template is asked in one user turn, with the instruction, the examples (if any) and the question all
inside that turn; an example as a turn of its own would put words into the model's mouth. A base model gets examples
and the question as plain text:

    chat    user: Give a short answer to the question. / Question: ...                assistant: It is Paris.
    plain   Question: ... / Answer: ... / Question: ... / Answer:                      Paris

A question with a `context` is put after its text. Word problems (`numeric`) ask for a short reasoning that ends in "The
answer is 18." The examples are ours and not among the packaged questions; being the same for every question, they
make prompts with a shared beginning.

The same question gives the same tokens, always; the first token (BOS) stands there once, as `Model.ids` sees to.
"""

from __future__ import annotations

from typing import Any

from headwise.core.errors import DataError
from headwise.corpora.questions import Question

__all__ = ["answer_ids", "default_few_shot", "has_chat", "prompt_ids", "prompt_of"]

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
    """How many examples suit the kind of prompt: none in a chat, five before a plain question.

    Measured with the default model on 120 packaged questions: it copies examples that stand inside a user's turn, so
    that with 0, 1, 3 and 5 of them 39, 28, 25 and 20 % of its answers are correct; as plain text, with 3 and 5 examples,
    26 and 33 %.
    """
    return 0 if chat else 5


def has_chat(model: Any) -> bool:
    """Whether the model's tokenizer has a chat template."""
    return bool(getattr(model.tokenizer, "chat_template", None))


def prompt_of(question: Question, *, few_shot: int, chat: bool) -> str | list[dict[str, str]]:
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
    model: Any, question: Question, *, few_shot: int | None = None, chat: bool | None = None
) -> tuple[int, ...]:
    """The prompt as token ids; `chat` None is a chat where the model has a template.

    What is longer than the model's context is cut to it: who goes on must check the length, with the answer's.
    """
    chat = has_chat(model) if chat is None else chat
    shots = default_few_shot(chat) if few_shot is None else few_shot
    return tuple(model.ids(prompt_of(question, few_shot=shots, chat=chat), limit=model.card.max_positions))


def answer_ids(model: Any, answer: str, *, chat: bool) -> tuple[int, ...]:
    """An answer that is known already, as the tokens the model would have said; after a plain prompt with a blank."""
    text = answer if chat else f" {answer}"
    return tuple(model.tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]) if answer else ()
