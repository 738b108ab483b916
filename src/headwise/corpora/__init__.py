"""What a model is shown: texts, questions and how they are put, token sequences, and the batches they travel in; and
how an answer is judged. Nothing here runs a model.
"""

from headwise.corpora.delimiters import delimiter_ids
from headwise.corpora.endpoint import Endpoint, answers_from, judged_by
from headwise.corpora.exact_answers import BLIND, PUBLISHED, exact_answer, place_of, text_of_tokens, token_span
from headwise.corpora.hub import find_questions, hub_questions, rows_as
from headwise.corpora.matching import CORRECT, LABELS, REFUSED, WRONG, Verdict, judge
from headwise.corpora.passages import Passage, Passages, packaged_passages, read_passages
from headwise.corpora.prompts import answer_ids, default_few_shot, has_chat, prompt_ids, prompt_of
from headwise.corpora.questions import Question, Questions, packaged_questions, read_questions
from headwise.corpora.relations import CATEGORIES, SLOT, Relation, Relations, packaged_relations, read_relations
from headwise.corpora.repeats import REPEATS, repeated_random
from headwise.corpora.sequences import Batch, Example, batches
from headwise.corpora.single_tokens import LEAST_PAIRS, Kept, single_token, token_of

__all__ = [
    "BLIND", "CATEGORIES", "CORRECT", "LABELS", "LEAST_PAIRS", "PUBLISHED", "REFUSED", "REPEATS", "SLOT", "WRONG",
    "Batch", "Endpoint", "Example", "Kept", "Passage", "Passages", "Question", "Questions", "Relation", "Relations",
    "Verdict", "answer_ids", "answers_from", "batches", "default_few_shot", "delimiter_ids", "exact_answer",
    "find_questions", "has_chat", "hub_questions", "judge", "judged_by", "packaged_passages", "packaged_questions",
    "packaged_relations", "place_of", "prompt_ids", "prompt_of", "read_passages", "read_questions", "read_relations",
    "repeated_random", "rows_as", "single_token", "text_of_tokens", "token_of", "token_span",
]  # fmt: skip
