"""What a model is shown: texts, questions and how they are put, token sequences, and the batches they travel in; and
how an answer is judged. Nothing here runs a model.
"""

from headwise.corpora.circuit_tasks import CIRCUIT_TASKS, CircuitTask, PromptPair, TaskPairs, circuit_pairs
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
from headwise.corpora.step_files import packaged_steps, read_steps
from headwise.corpora.step_matching import judge_step, right
from headwise.corpora.step_prompts import step_ids, step_prompt
from headwise.corpora.steps import FUNCTIONS, HELD_OUT, HIGH_ORDER, LOW_ORDER, TRAIN, Step, Steps

__all__ = [
    "BLIND", "CATEGORIES", "CIRCUIT_TASKS", "CORRECT", "FUNCTIONS", "HELD_OUT", "HIGH_ORDER", "LABELS",
    "LEAST_PAIRS", "LOW_ORDER", "PUBLISHED", "REFUSED", "REPEATS", "SLOT", "TRAIN", "WRONG", "Batch", "CircuitTask",
    "Endpoint", "Example", "Kept", "Passage", "Passages", "PromptPair", "Question", "Questions", "Relation",
    "Relations", "Step", "Steps", "TaskPairs", "Verdict", "answer_ids", "answers_from", "batches", "circuit_pairs",
    "default_few_shot", "delimiter_ids", "exact_answer", "find_questions", "has_chat", "hub_questions", "judge",
    "judge_step", "judged_by", "packaged_passages", "packaged_questions", "packaged_relations", "packaged_steps",
    "place_of", "prompt_ids", "prompt_of", "read_passages", "read_questions", "read_relations", "read_steps",
    "repeated_random", "right", "rows_as", "single_token", "step_ids", "step_prompt", "text_of_tokens", "token_of",
    "token_span",
]  # fmt: skip
