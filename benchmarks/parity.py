"""Are our scores of wrong answers those of LM-Polygraph? The same prompts, answers and samples, scored by both; and the cost.

    python benchmarks/parity.py                 writes its section of docs/detection-benchmark.md and parity.json
    python benchmarks/parity.py --questions 40 --samples 5 --batch 8
    python benchmarks/parity.py --render        the section again from parity.json

LM-Polygraph generates in an environment of its own (`peers.polygraph_child`): greedy answers and samples of the default model,
on eager attention. Headwise reads the very same token ids, teacher-forced, and computes its scores of them. Where a definition
differs, ours follows the paper, `CONVERSIONS` has what turns one into the other, and both must then agree to 1e-4 of
1 + |theirs|, or the benchmark ends with an error.

Times are CPU seconds, which other programs on the machine hardly change. Ours are those of the study `uncertainty` on the same
questions (its own answers and samples); theirs are of their calculators, one prompt at a time unless --batch says otherwise.
Both name a plain greedy answer of the same process as the base. Memory: the largest resident set of a process of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
import xarray as xr
from clock import peak
from page import made_by, write_section
from peers.comparison import CannotRun
from peers.environment import NoEnvironment, last_error, python_of

import headwise as hw
from headwise.corpora import find_questions
from headwise.engines import Shard
from headwise.probes.running_scores import ALPHA
from headwise.scores import scores
from headwise.scores.agreement import degree_matrix, jaccard, rouge_l, similarities, similarity_eigenvalues
from headwise.scores.hidden_states import log_determinant
from headwise.scores.semantic_entropy import semantic_entropy
from headwise.seam import Structure
from headwise.studies.answers import measure as answering
from headwise.studies.answers.spec import AnsweringOptions
from headwise.studies.inputs import StudyInputs
from headwise.studies.passes import read_together
from headwise.studies.probing.positions import parse_ids
from headwise.studies.samples.measure import ProbeSite, last_activations
from headwise.studies.uncertainty import measure as uncertainty
from headwise.studies.uncertainty.reading import UncertaintyReader
from headwise.studies.uncertainty.spec import UncertaintyOptions

HERE = Path(__file__).parent
RESULTS = HERE / "parity.json"
DOCS = HERE.parent / "docs" / "detection-benchmark.md"
PEER = "lm-polygraph"
TOLERANCE = 1e-4
LONGEST = 7200  # seconds for the child
EIGENVALUES = 5
LABELLED = 40  # answers without which the study has too few of a label

CONVERSIONS = {  # their estimator: our score, and what turns ours into theirs
    "MaximumSequenceProbability": ("Sequence probability", "they count the token that ends the answer"),
    "Perplexity": ("Log-probability, mean", "they count the token that ends the answer; both are the log of the perplexity"),
    "MeanTokenEntropy": ("Token entropy", "they count the token that ends the answer"),
    "RAUQ": ("RAUQ", "+ 1; they count the token that ends the answer"),
    "AttentionScore": ("LLM-Check, attention", "they sum over all tokens, the prompt's too, and average over heads"),
    "PTrue": ("p(True)", "-log P(True) of their prompt among tokens that do not end it; ours: next section"),
    "MonteCarloSequenceEntropy": (
        "Predictive entropy", "they count the token that ends a sample, and none of theirs ends before two tokens",
    ),
    "MonteCarloNormalizedSequenceEntropy": (
        "Predictive entropy, per token", "the same, but the token that ends a sample is in the sum, not in the length",
    ),
    "SemanticEntropy": (
        "Semantic entropy", "`over=\"samples\"`: mean over samples of -log Σ p(sample) of its group, unnormalised; the same",
    ),
    "SemanticEntropyEmpirical": ("Discrete semantic entropy", "none"),
    "EigenScore": ("EigenScore", "state one layer lower, at the last token that was fed, not at the last of the sample"),
    "LexicalSimilarity": ("Lexical similarity", "words are stemmed"),
    "DegMat_Jaccard": ("Degree matrix", "words are split at spaces"),
    "EigValLaplacian_Jaccard": ("Similarity eigenvalues", "words are split at spaces"),
}  # fmt: skip


def prompts_of(model: Any, count: int) -> tuple[list[str], xr.Dataset, StudyInputs]:
    """Prompts of packaged questions as the study `answers` writes them; its answers; and the inputs."""
    inputs = StudyInputs(questions_source=find_questions().sample(max(count, LABELLED), seed=0))
    run = answering.prepare(model, inputs, AnsweringOptions())
    answers = run.finalize([run.measure(Shard(0, 0, run.examples))])["answers"]
    texts = [model.tokenizer.decode(parse_ids(str(ids))) for ids in answers["prompt_ids"].values[:count]]
    labels = np.where(
        np.arange(answers.sizes["example"]) % 2, "wrong", "correct"
    )  # the study asks for both; nothing is judged
    return texts, answers.assign(label=("example", labels)).assign_attrs(run.provenance.to_attrs()), inputs


def theirs(folder: Path, *options: str) -> dict[str, Any]:
    """What the child prints last."""
    command = [
        str(python_of(PEER)), "-m", "peers.polygraph_child", "--model", str(folder / "model"), "--prompts",
        str(folder / "prompts.json"), "--threads", str(torch.get_num_threads()), *options,
    ]  # fmt: skip
    around = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"} | {"HF_HUB_OFFLINE": "1"}
    done = subprocess.run(command, capture_output=True, text=True, cwd=HERE, env=around, timeout=LONGEST)
    if done.returncode:
        raise CannotRun(last_error(done.stderr) or f"ended with {done.returncode}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def converted(model: Any, rows: list[dict[str, Any]]) -> dict[str, list[float]]:
    """Our scores of their prompts, answers and samples, after the conversion; by the name of theirs."""
    read = _read(model, [(row["prompt"], row["answer"]) for row in rows])
    own = {
        name: np.asarray(scores()[name](read))
        for name in ("Sequence probability", "Log-probability, mean", "Token entropy", "RAUQ")
    }
    found = {
        "MaximumSequenceProbability": own["Sequence probability"], "Perplexity": own["Log-probability, mean"],
        "MeanTokenEntropy": own["Token entropy"], "RAUQ": own["RAUQ"] + 1,
    }  # fmt: skip
    found["AttentionScore"] = np.array([_llm_check(model, row["prompt"] + row["answer"]) for row in rows])
    true, end = (
        _read(model, [(row["asked"], ids(row)) for row in rows])["logprobs"].sum("token").values
        for ids in (lambda row: row["true"], lambda row: [row["eos"]])
    )
    found["PTrue"] = -(
        true - np.log1p(-np.exp(end))
    )  # their prompt may not end here: its probability goes to the others
    whole = [(row["prompt"], one["ids"] + [row["eos"]] * one["ended"]) for row in rows for one in row["samples"]]
    draws = len(rows[0]["samples"])
    sums = _read(model, whole)["logprobs"].sum("token").values
    eos = rows[0]["eos"]
    for said in (0, 1):  # their samples may not end here either
        ends = _read(model, [((*prompt, *ids[:said]), [eos]) for prompt, ids in whole])["logprobs"].values[:, 0]
        sums = sums - np.log1p(-np.exp(ends))
    sums = sums.reshape(-1, draws)
    lengths = np.array([[len(one["ids"]) for one in row["samples"]] for row in rows])
    groups = np.array([row["groups"] for row in rows])
    found["MonteCarloSequenceEntropy"] = -sums.mean(axis=1)
    found["MonteCarloNormalizedSequenceEntropy"] = -(sums / lengths).mean(axis=1)
    found["SemanticEntropy"] = semantic_entropy(sums, groups, over="samples")
    found["SemanticEntropyEmpirical"] = semantic_entropy(np.zeros(groups.shape), groups)
    fed = [(tuple(prompt), tuple(ids[:-1])) for prompt, ids in whole]
    layer = model.card.layers // 2 - 1  # their hidden_states[n // 2] is what layer n // 2 - 1 wrote
    states = last_activations(Structure(model), model, ProbeSite("residual", layer), (), *zip(*fed, strict=True))
    found["EigenScore"] = log_determinant(states.reshape(len(rows), draws, -1))
    pairs = np.triu_indices(draws, 1)
    found["LexicalSimilarity"] = np.array([-similarities(row["words"], rouge_l)[pairs].mean() for row in rows])
    texts = [[tuple(text.lower().split()) for text in row["texts"]] for row in rows]
    found["DegMat_Jaccard"] = np.array([degree_matrix(similarities(row, jaccard)) for row in texts])
    found["EigValLaplacian_Jaccard"] = np.array([similarity_eigenvalues(similarities(row, jaccard)) for row in texts])
    return {name: values.tolist() for name, values in found.items()}


def _read(model: Any, pairs: list[tuple[list[int], list[int]]]) -> xr.Dataset:
    """What `UncertaintyReader` reads of prompts and answers."""
    prompts, answers = ([tuple(ids) for ids in one] for one in zip(*pairs, strict=True))
    names = [str(row) for row in range(len(pairs))]
    reader = UncertaintyReader(
        Structure(model), names, prompts, answers, layer=model.card.layers // 2, k=EIGENVALUES,
        width=max(map(len, answers)), batch_tokens=4096,
    )  # fmt: skip
    return read_together({"uncertainty": reader}, names)["uncertainty"]


def _llm_check(model: Any, ids: list[int]) -> float:
    """Minus the sum over tokens of the log weight on the own token, mean over the heads of the middle layer."""
    tokens = torch.tensor([ids])
    with hw.observe(model, hw.Spectrum(k=1)) as seen:
        model(input_ids=tokens, attention_mask=torch.ones_like(tokens))
    here = seen["spectrum"]["log_determinant"].isel(example=0, layer=model.card.layers // 2)
    return -float(here.mean()) * len(ids)


def ours(model: Any, answers: xr.Dataset, inputs: StudyInputs, count: int, samples: int) -> dict[str, float]:
    """Seconds per answer of every part of the study."""
    given = StudyInputs(questions_source=inputs.questions_source, maps={"answers": answers})
    run = uncertainty.prepare(model, given, UncertaintyOptions(samples=samples))
    with mock.patch.object(uncertainty.time, "perf_counter", time.process_time):
        read = run.measure(Shard(0, 0, min(count, run.examples)))
    return {
        str(name).removeprefix("seconds "): float(read[name].mean())
        for name in read
        if str(name).startswith("seconds ")
    }


def compared(rows: list[dict[str, Any]], own: dict[str, list[float]]) -> dict[str, float]:
    """By estimator: the largest difference, over 1 + |theirs|."""
    found = {}
    for name, values in own.items():
        their = np.array([row["scores"][name] for row in rows])
        found[name] = float((np.abs(their - np.array(values)) / (1 + np.abs(their))).max())
    return found


def section(found: dict[str, Any]) -> str:
    """The tables, as Markdown."""
    lines = [
        f"{found['questions']} packaged questions, {found['samples']} samples each; LM-Polygraph "
        f"{found['versions']['lm_polygraph']} with transformers {found['versions']['transformers']}, its answers and samples "
        "read by both. Difference: the largest over questions of |theirs − ours| / (1 + |theirs|), after the conversion.",
        "", "| LM-Polygraph | Headwise | conversion of ours | difference |", "|---|---|---|---|",
    ]  # fmt: skip
    for name, (score, how) in CONVERSIONS.items():
        lines.append(f"| {name} | {score} | {how} | {found['difference'][name]:.1e} |")
    if "theirs" not in found:
        return "\n".join([*lines, "", found["made"]])
    mine, their = found["ours"], found["theirs"]
    attention = their["answer with attention"] + their["attention again"]
    lines += ["", "| CPU seconds per answer | LM-Polygraph | Headwise |", "|---|---|---|"]
    for what, one, other in (
        ("plain greedy answer", their["plain"], mine["answer"]),
        (
            "answer and everything of attention and probabilities",
            attention + their["entropy"],
            mine["answer"] + mine["pass"],
        ),
        ("... over a plain answer", (attention + their["entropy"]) / their["plain"], 1 + mine["pass"] / mine["answer"]),
        ("p(True)", their["p(True)"], mine["p(True)"]),
        (f"{found['samples']} samples", their["samples"], mine["samples"]),
        ("peak memory of a process, plain answers, MB", found["memory"]["their plain"], found["memory"]["our plain"]),
        ("peak memory of a process, all scores, MB", found["memory"]["their scores"], found["memory"]["our scores"]),
    ):
        digits = 0 if "MB" in what else 2
        lines.append(f"| {what} | {one:,.{digits}f} | {other:,.{digits}f} |")
    return "\n".join([*lines, "", found["made"]])


def own_memory(what: str, count: int, samples: int) -> None:
    """Runs in a process of its own: answers alone, or all that the study reads; prints its peak."""
    model = hw.load()
    _, answers, inputs = prompts_of(model, count)
    if what == "scores":
        ours(model, answers, inputs, count, samples)
    print(json.dumps({"memory": peak()}))


def main() -> int:
    """Measure, compare, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--questions", type=int, default=24)
    parser.add_argument("--samples", type=int, default=5)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--render", action="store_true")
    parser.add_argument("--memory", choices=("plain", "scores"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.memory:
        own_memory(options.memory, options.questions, options.samples)
        return 0
    if not options.render:
        RESULTS.write_text(json.dumps(measured(options), indent=1) + "\n", encoding="utf-8")
    found = json.loads(RESULTS.read_text(encoding="utf-8"))
    write_section("parity", section(found), DOCS)
    worst = max(found["difference"], key=found["difference"].__getitem__)
    print(f"largest difference: {found['difference'][worst]:.1e} ({worst}); written to {DOCS}")
    return 0 if found["difference"][worst] <= TOLERANCE else 1


def measured(options: argparse.Namespace) -> dict[str, Any]:
    """Everything of the section."""
    count, samples = options.questions, options.samples
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = hw.load()
        model.hf.save_pretrained(folder / "model")
        model.tokenizer.save_pretrained(folder / "model")
        texts, answers, inputs = prompts_of(model, count)
        (folder / "prompts.json").write_text(json.dumps(texts), encoding="utf-8")
        how = ("--samples", str(samples), "--batch", str(options.batch))
        try:
            summary = theirs(folder, *how, "--output", str(folder / "scored.json"))
            memory = {f"their {what}": theirs(folder, *how, "--memory", what)["memory"] for what in ("plain", "scores")}
        except (NoEnvironment, CannotRun) as error:
            raise SystemExit(f"LM-Polygraph has no numbers: {error}") from error
        rows = json.loads((folder / "scored.json").read_text(encoding="utf-8"))
    own = converted(model, rows)
    for what in ("plain", "scores"):
        command = [sys.executable, __file__, "--memory", what, "--questions", str(count), "--samples", str(samples)]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=LONGEST)
        memory[f"our {what}"] = json.loads(done.stdout.splitlines()[-1])["memory"]
    command = f"python benchmarks/parity.py --questions {count} --samples {samples}"
    return {
        "questions": count, "samples": samples, "batch": options.batch, "alpha": ALPHA, "difference": compared(rows, own),
        "theirs": summary["seconds"], "ours": ours(model, answers, inputs, count, samples), "memory": memory,
        "versions": summary["versions"], "made": made_by(command),
    }  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
