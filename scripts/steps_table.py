"""How many steps of each function does a model do? The table of docs/studies/function-data.md.

    python scripts/steps_table.py                                   all packaged steps, the default model
    python scripts/steps_table.py --steps FILE --sample 200         a user's file, or CogQA; evenly over functions
    python scripts/steps_table.py --model MODEL --answers FILE      also writes every answer and the rule that judged it

Greedy, batched, at most 12 new tokens.
"""

from __future__ import annotations

import argparse
import json
from math import sqrt
from pathlib import Path

import headwise
from headwise.corpora import judge_step, packaged_steps, read_steps, step_ids
from headwise.studies.answers.endings import ending, text_of
from headwise.studies.decoding import PrefixCachedDecoder, common_prefix_length


def main() -> None:
    """Answer, judge, count."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model")
    parser.add_argument("--steps")
    parser.add_argument("--sample", type=int)
    parser.add_argument("--answers")
    parser.add_argument("--tokens", type=int, default=12)
    options = parser.parse_args()
    steps = read_steps(options.steps) if options.steps else packaged_steps()
    if options.sample:
        steps = steps.sample(options.sample)
    model = headwise.load(options.model) if options.model else headwise.load()
    prompts = [step_ids(model, step) for step in steps]
    decoder = PrefixCachedDecoder(model, prompts[0][: common_prefix_length(prompts)])
    replies = decoder.generate(prompts, options.tokens, ending(model, numeric=False))
    texts = [text_of(model, reply.ids) for reply in replies]
    verdicts = [judge_step(step, text) for step, text in zip(steps, texts, strict=True)]
    print(
        f"{steps.name}: {len(steps)} steps, prompts of {sorted(map(len, prompts))[len(prompts) // 2]} tokens (median)"
    )
    for function in steps.functions:
        own = [v.label == "correct" for step, v in zip(steps, verdicts, strict=True) if step.function == function]
        share = sum(own) / len(own)
        error = 196 * sqrt(share * (1 - share) / len(own))
        print(f"| {function} | {100 * share:.0f} % ± {error:.0f} ({sum(own)} of {len(own)}) |")
    if options.answers:
        rows = [
            {
                "id": step.id,
                "function": step.function,
                "right": step.answers,
                "said": text,
                "label": v.label,
                "rule": v.rule,
            }
            for step, text, v in zip(steps, texts, verdicts, strict=True)
        ]
        Path(options.answers).write_text("\n".join(map(json.dumps, rows)) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
