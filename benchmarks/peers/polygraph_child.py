"""Runs in LM-Polygraph's own environment, as a child of `parity`: its answers, samples and scores. Does not know Headwise.

    python -m peers.polygraph_child --model FOLDER --prompts FILE --output FILE --samples 5 --batch 1
    python -m peers.polygraph_child --model FOLDER --prompts FILE --memory plain      largest resident set, MB

LM-Polygraph's calculators generate (greedy answer with all attention maps, samples with hidden states, p(True)) and its
estimators score, as its own benchmark calls them, on eager attention. Only the equivalence of samples is given (equal words),
since its entailment model is not at hand. All that its scores were computed from is handed over: prompts and answers as token
ids. What is timed: CPU seconds of each calculator,
per prompt, next to a plain greedy answer with SDPA in the same process.
"""

from __future__ import annotations

import argparse
import json
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from clock import peak
from lm_polygraph.estimators import (
    DegMat,
    EigenScore,
    EigValLaplacian,
    LexicalSimilarity,
    MaximumSequenceProbability,
    MeanTokenEntropy,
    MonteCarloNormalizedSequenceEntropy,
    MonteCarloSequenceEntropy,
    Perplexity,
    PTrue,
    SemanticEntropy,
)
from lm_polygraph.estimators.attention_score import AttentionScore
from lm_polygraph.estimators.rauq import RAUQ
from lm_polygraph.model_adapters import WhiteboxModel
from lm_polygraph.stat_calculators import EntropyCalculator, GreedyProbsCalculator, PromptCalculator
from lm_polygraph.stat_calculators.attention_forward_pass import AttentionForwardPassCalculator
from lm_polygraph.stat_calculators.sample import SamplingGenerationCalculator
from lm_polygraph.utils.generation_parameters import GenerationParameters
from transformers import AutoModelForCausalLM, AutoTokenizer, set_seed

NEW_TOKENS = 24


def estimators() -> dict[str, Any]:
    """Their estimators, by the names of the table."""
    return {
        "MaximumSequenceProbability": MaximumSequenceProbability(), "Perplexity": Perplexity(),
        "MeanTokenEntropy": MeanTokenEntropy(), "RAUQ": RAUQ(), "AttentionScore": AttentionScore(), "PTrue": PTrue(),
        "MonteCarloSequenceEntropy": MonteCarloSequenceEntropy(),
        "MonteCarloNormalizedSequenceEntropy": MonteCarloNormalizedSequenceEntropy(),
        "SemanticEntropy": SemanticEntropy(),
        "SemanticEntropyEmpirical": SemanticEntropy(class_probability_estimation="frequency"),
        "EigenScore": EigenScore(), "LexicalSimilarity": LexicalSimilarity(),
        "DegMat_Jaccard": DegMat(similarity_score="Jaccard_score"),
        "EigValLaplacian_Jaccard": EigValLaplacian(similarity_score="Jaccard_score"),
    }  # fmt: skip


def load(folder: Path, attention: str) -> WhiteboxModel:
    """The weights; answers end with their line."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation=attention).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder, padding_side="left")
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    return WhiteboxModel(model, tokenizer, str(folder), "CausalLM", GenerationParameters(top_k=0, stop_strings=["\n"]))


def plain(model: WhiteboxModel, texts: list[str]) -> None:
    """A greedy answer, and nothing else."""
    batch = model.tokenize(texts)
    with torch.no_grad():
        model.model.generate(
            **batch, max_new_tokens=NEW_TOKENS, do_sample=False, stop_strings=["\n"], tokenizer=model.tokenizer
        )


def same_words(texts: list[str]) -> list[int]:
    """The number of each text's group: those with the same words."""
    words = [" ".join(text.lower().split()) for text in texts]
    return [words.index(one) for one in words]


def scored(model: WhiteboxModel, texts: list[str], samples: int, seconds: dict[str, float]) -> list[dict[str, Any]]:
    """Their statistics and scores of some prompts."""
    stats: dict[str, Any] = {"input_texts": texts, "model": model}
    steps = {
        "answer with attention": GreedyProbsCalculator(), "attention again": AttentionForwardPassCalculator(),
        "entropy": EntropyCalculator(), "p(True)": PromptCalculator(), "samples": SamplingGenerationCalculator(samples),
    }  # fmt: skip
    for name, step in steps.items():
        start = time.process_time()
        stats |= step(stats, texts, model, max_new_tokens=NEW_TOKENS)
        seconds[name] = seconds.get(name, 0.0) + time.process_time() - start
    groups = [same_words(row) for row in stats["sample_texts"]]
    classes = [[[i for i, own in enumerate(row) if own == group] for group in sorted(set(row))] for row in groups]
    places = [{i: number for number, own in enumerate(row) for i in own} for row in classes]
    stats["semantic_classes_entail"] = {
        "class_to_sample": dict(enumerate(classes)),
        "sample_to_class": dict(enumerate(places)),
    }
    start = time.process_time()
    values = {name: np.asarray(one(stats), dtype=np.float64) for name, one in estimators().items()}
    seconds["estimators"] = seconds.get("estimators", 0.0) + time.process_time() - start
    rouge = LexicalSimilarity().scorer._tokenizer
    question = (
        "Question: {}\n Possible answer:{}\n Is the possible answer:\n (A) True\n (B) False\n The possible answer is:"
    )
    asked = [question.format(text, answer) for text, answer in zip(texts, stats["greedy_texts"], strict=True)]
    found = []
    for row, text in enumerate(texts):
        sampled = zip(
            stats["sample_tokens"][row],
            stats["sample_log_probs"][row],
            stats["sample_log_likelihoods"][row],
            strict=True,
        )
        found.append({
            "prompt": model.tokenizer(text)["input_ids"],
            "answer": stats["greedy_tokens"][row],
            "asked": model.tokenizer(asked[row])["input_ids"],
            "true": model.tokenizer("True")["input_ids"],
            "samples": [{"ids": ids, "ended": abs(total - sum(each)) > 0} for ids, total, each in sampled],
            "words": [rouge.tokenize(one) for one in stats["sample_texts"][row]],
            "texts": stats["sample_texts"][row],
            "groups": groups[row],
            "eos": model.tokenizer.eos_token_id,
            "scores": {name: float(value[row]) for name, value in values.items()},
        })  # fmt: skip
    return found


def main() -> None:
    """Score, or take the memory; the last line of the output is the result's summary."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--prompts", type=Path, required=True)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--samples", type=int, default=5)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--memory", choices=("plain", "scores"))
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    texts = json.loads(options.prompts.read_text(encoding="utf-8"))
    parts = [texts[start : start + options.batch] for start in range(0, len(texts), options.batch)]
    seconds: dict[str, float] = {}
    set_seed(0)
    if options.memory == "plain" or options.memory is None:
        model = load(options.model, "sdpa")
        plain(model, parts[0])
        start = time.process_time()
        for part in parts if options.memory is None else parts[:2]:
            plain(model, part)
        seconds["plain"] = time.process_time() - start
        del model
    found: list[dict[str, Any]] = []
    if options.memory != "plain":
        model = load(options.model, "eager")
        for part in parts if options.memory is None else parts[:2]:
            found += scored(model, part, options.samples, seconds)
    if options.output is not None:
        options.output.write_text(json.dumps(found), encoding="utf-8")
    names = ("lm_polygraph", "transformers", "torch")
    per_prompt = {name: value / len(texts) for name, value in seconds.items()}
    print(json.dumps({"seconds": per_prompt, "memory": peak(), "versions": {name: version(name) for name in names}}))


if __name__ == "__main__":
    main()
