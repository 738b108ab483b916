"""What the explorer does with a loaded model: run a prompt, show a head's map, scale heads, score an answer.

Import order: response_schemas; answer_scores; generation; pooled_maps; effects; runs; session.
"""

from headwise.corpora.prompts import PROMPT_MODES
from headwise.live.generation import MAX_PROMPT_TOKENS, max_prompt_tokens
from headwise.live.session import MAX_ANSWER_TOKENS, LiveSession

__all__ = ["MAX_ANSWER_TOKENS", "MAX_PROMPT_TOKENS", "PROMPT_MODES", "LiveSession", "max_prompt_tokens"]
