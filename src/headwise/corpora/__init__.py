"""What a model is shown: texts, questions and their prompts, token sequences; and how an answer is judged.

Nothing here runs a model. Names are loaded on first use, and none of them loads torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwise.core.lazy import lazy_exports

if TYPE_CHECKING:
    from headwise.corpora.circuit_tasks import CIRCUIT_TASKS, CircuitTask, PromptPair, TaskPairs, circuit_pairs
    from headwise.corpora.endpoint import Endpoint, ask_all, judge_all
    from headwise.corpora.evaluation_logs import EvaluationLog, LoggedAnswer, read_evaluation_log
    from headwise.corpora.exact_answers import BLIND, PUBLISHED, decode_ids, exact_answer, find_span, token_span
    from headwise.corpora.hub import find_questions, hub_questions, read_hub_rows
    from headwise.corpora.matching import CORRECT, LABELS, REFUSED, WRONG, Verdict, judge
    from headwise.corpora.passages import Passage, Passages, packaged_passages, read_passages
    from headwise.corpora.prompts import (
        answer_ids,
        default_few_shot,
        has_chat_template,
        prompt_ids,
        question_prompt,
        step_ids,
        step_prompt,
    )
    from headwise.corpora.questions import Question, Questions, packaged_questions, read_questions
    from headwise.corpora.relations import (
        CATEGORIES,
        MIN_PAIRS,
        SLOT,
        Relation,
        Relations,
        SingleTokenPairs,
        packaged_relations,
        read_relations,
        single_token_ids,
        single_token_pairs,
    )
    from headwise.corpora.sequences import REPEATS, Example, delimiter_ids, repeated_random
    from headwise.corpora.step_files import packaged_steps, read_steps
    from headwise.corpora.steps import (
        FUNCTIONS,
        HELD_OUT,
        HIGH_ORDER,
        LOW_ORDER,
        TRAIN,
        Step,
        Steps,
        answers_step,
        judge_step,
    )

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        ".circuit_tasks": "CIRCUIT_TASKS CircuitTask PromptPair TaskPairs circuit_pairs",
        ".endpoint": "Endpoint ask_all judge_all",
        ".evaluation_logs": "EvaluationLog LoggedAnswer read_evaluation_log",
        ".exact_answers": "BLIND PUBLISHED decode_ids exact_answer find_span token_span",
        ".hub": "find_questions hub_questions read_hub_rows",
        ".matching": "CORRECT LABELS REFUSED WRONG Verdict judge",
        ".passages": "Passage Passages packaged_passages read_passages",
        ".prompts": "answer_ids default_few_shot has_chat_template prompt_ids question_prompt step_ids step_prompt",
        ".questions": "Question Questions packaged_questions read_questions",
        ".relations": "CATEGORIES MIN_PAIRS SLOT Relation Relations SingleTokenPairs packaged_relations read_relations "
        "single_token_ids single_token_pairs",
        ".sequences": "REPEATS Example delimiter_ids repeated_random",
        ".step_files": "packaged_steps read_steps",
        ".steps": "FUNCTIONS HELD_OUT HIGH_ORDER LOW_ORDER TRAIN Step Steps answers_step judge_step",
    },
)

__all__ = [
    "BLIND", "CATEGORIES", "CIRCUIT_TASKS", "CORRECT", "FUNCTIONS", "HELD_OUT", "HIGH_ORDER", "LABELS", "LOW_ORDER",
    "MIN_PAIRS", "PUBLISHED", "REFUSED", "REPEATS", "SLOT", "TRAIN", "WRONG", "CircuitTask", "Endpoint",
    "EvaluationLog", "Example", "LoggedAnswer", "Passage", "Passages", "PromptPair", "Question", "Questions",
    "Relation", "Relations", "SingleTokenPairs", "Step", "Steps", "TaskPairs", "Verdict", "answer_ids",
    "answers_step", "ask_all", "circuit_pairs", "decode_ids", "default_few_shot", "delimiter_ids", "exact_answer",
    "find_questions", "find_span", "has_chat_template", "hub_questions", "judge", "judge_all", "judge_step",
    "packaged_passages", "packaged_questions", "packaged_relations", "packaged_steps", "prompt_ids",
    "question_prompt", "read_evaluation_log", "read_hub_rows", "read_passages", "read_questions", "read_relations",
    "read_steps", "repeated_random", "single_token_ids", "single_token_pairs", "step_ids", "step_prompt",
    "token_span",
]  # fmt: skip
