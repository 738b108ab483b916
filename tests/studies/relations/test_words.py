"""The words of the relations study: each number computed again, planted heads named, what was left out told."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
import xarray as xr
from map_rules import map_rules
from synthetic.relations import relations_dataset

from headwise.describe import Description, Number
from headwise.studies.present import describe

HEAD = re.compile(r"L(\d+)H(\d+)")
NUMBER = re.compile(r"−?\d+(?:,\d{3})*(?:\.\d+)?")


def either(ds: xr.Dataset) -> np.ndarray:
    """(category, layer, head)"""
    return (ds["member"] | ds["member_suppression"]).values


def counts(ds: xr.Dataset) -> np.ndarray:
    return np.where(np.isfinite(ds["best_score"].values), either(ds).sum(0), -1)


def of_category(ds: xr.Dataset, name: str) -> np.ndarray:
    return either(ds)[list(ds["category"].values).index(name)]


def kept(ds: xr.Dataset, name: str) -> dict[str, object]:
    return next(one for one in json.loads(ds.attrs["kept"]) if one["relation"] == name)


def at(ds: xr.Dataset, variable: str, relation: str, name: str) -> float:
    layer, head = (int(part) for part in HEAD.fullmatch(name).groups())  # type: ignore[union-attr]
    return float(ds[variable].sel(relation=relation, layer=layer, head=head))


def passed(ds: xr.Dataset, *relation: str) -> float:
    chosen = ds.sel(relation=list(relation)) if relation else ds
    over = [chosen[f"{sign}_null_over"].values.astype(float) for sign in ("score", "suppression")]
    return 100 * float(np.nanmean(over))


def third(ds: xr.Dataset, name: str, index: str) -> float:
    there = np.isfinite(ds["best_score"].values)
    rows = np.array_split(np.flatnonzero(there.any(1)), 3)[int(index)]
    return 100 * float(of_category(ds, name)[rows][there[rows]].mean())


def recomputed(number: Number, ds: xr.Dataset) -> float:
    """The same number, from the data alone."""
    kind, *rest = number.source.split(" ", 3)
    member, against = (ds[name].any("category").values for name in ("member", "member_suppression"))
    best = ds["best_score"].values.astype(float)
    rules: dict[str, Callable[..., float]] = {
        "layers": lambda: ds.sizes["layer"],
        "heads": lambda: ds.sizes["head"],
        "relations": lambda: ds.sizes["relation"],
        "categories": lambda: ds.sizes["category"],
        "pairs": lambda: ds.sizes["example"],
        "total": lambda: np.isfinite(ds["best_score"].values).sum(),
        "size": lambda name: of_category(ds, name).sum(),
        "share": lambda name: 100 * of_category(ds, name).sum() / np.isfinite(ds["best_score"].values).sum(),
        "member": lambda name: ds["member"].sel(category=name).sum(),
        "member_suppression": lambda name: ds["member_suppression"].sel(category=name).sum(),
        "third": lambda name, index: third(ds, name, index),
        "peak": lambda name: of_category(ds, name).sum(1).argmax(),
        "at": lambda variable, relation, name: at(ds, variable, relation, name),
        "given": lambda name: kept(ds, name)["given"],
        "kept": lambda name: kept(ds, name)["kept"],
        "dropped": lambda name, *reason: kept(ds, name)["dropped"][" ".join(reason)],
        "classified": lambda: (counts(ds) > 0).sum(),
        "classified-share": lambda: 100 * (counts(ds) > 0).sum() / (counts(ds) >= 0).sum(),
        "with": lambda n: (counts(ds) == int(n)).sum(),
        "several": lambda: (counts(ds) > 1).sum(),
        "only-suppression": lambda: (against & ~member).sum(),
        "both-signs": lambda: (against & member).sum(),
        "shuffles": lambda: ds.attrs["shuffles"],
        "false-positive": lambda *relation: passed(ds, *relation),
        "beyond-null": lambda: ds["member_beyond_null"].any("category").sum(),
        "mean": lambda name: float(ds[name].mean()),
        "min": lambda name: int(ds[name].min()),
        "max": lambda name: int(ds[name].max()),
        "published": lambda: int(paper(ds).sum()),
        "unpublished": lambda: int((~paper(ds)).sum()),
        "classified-published": lambda: classified(ds, paper(ds)),
        "fewest": lambda: ds["pairs"].min(),
        "step": lambda: 1 / ds["pairs"].min(),
    }
    if kind in ("constant", "edge"):
        return number.value
    if rest and rest[0] == "best_score":
        return float({"median": lambda _: np.nanmedian(best), **map_rules(lambda _: best)}[kind](*rest))
    if kind in ("member-box", "box-area"):
        name, *edges = number.source.split()[1:]
        top, bottom, left, right = map(int, edges)
        inside = of_category(ds, name)[top : bottom + 1, left : right + 1]
        return float(
            inside.sum() if kind == "member-box" else np.isfinite(best[top : bottom + 1, left : right + 1]).sum()
        )
    return float(rules[kind](*rest))


def paper(ds: xr.Dataset) -> np.ndarray:
    """(relation,): whether it is one of the paper's twenty: ours are these six."""
    ours = ["capitalised", "uppercase", "number-word", "successor", "plural", "english-german"]
    return ~np.isin(ds["relation"].values.astype(str), ours)


def classified(ds: xr.Dataset, which: np.ndarray) -> int:
    over = (ds["score"].values > np.float32(0.15)) | (ds["suppression"].values > np.float32(0.15))
    return int(over[which].any(axis=0).sum())


def stripped(words: Description) -> str:
    text = words.text() + words.short()
    return HEAD.sub("", text.replace("HuggingFaceTB/SmolLM2-135M-Instruct", "")).replace("95 %", "")


@pytest.mark.parametrize("shape", [(30, 9), (12, 12), (8, 3), (1, 1), (80, 64)])
@pytest.mark.parametrize("options", [{}, {"seed": 4}])
def test_every_number_is_in_the_data(
    make_relations: Callable[..., xr.Dataset], shape: tuple[int, int], options: dict[str, int]
) -> None:
    dataset = make_relations(*shape, **options)
    words = describe("relations", dataset)
    known = Counter(match for number in words.numbers for match in NUMBER.findall(number.text))
    said = Counter(NUMBER.findall(stripped(words)))
    assert said.total() > 30
    assert not said - known
    for number in words.numbers:
        assert number.value == pytest.approx(recomputed(number, dataset), rel=1e-4, abs=1e-4), number
    assert "not known" not in words.text()
    assert "nan" not in words.text().lower().split()


def test_planted_heads_are_named(relations: xr.Dataset) -> None:
    words = describe("relations", relations)
    knowledge = next(line for line in words.detail if line.startswith("Knowledge:"))
    assert {"L3H1", "L6H2", "L7H1"} & {f"L{a}H{b}" for a, b in HEAD.findall(knowledge)}
    said = "\n".join(words.observations)
    assert "L7H1 (algorithmic, knowledge, linguistic, translation)" in said
    assert "L6H2 (algorithmic, knowledge, linguistic)" in said
    assert "1 head belongs to a category by suppression alone" in said


def test_what_was_left_out_and_why(relations: xr.Dataset) -> None:
    line = next(line for line in describe("relations", relations).detail if line.startswith("year-following"))
    assert line == (
        "year-following (algorithmic) is left out: 27 of its 230 pairs are usable (both are several tokens in 200 and "
        "target is several tokens in 3)."
    )


def test_chance_is_told(relations: xr.Dataset) -> None:
    words = describe("relations", relations)
    assert any("With the targets permuted within each relation (20 times)" in line for line in words.observations)
    assert any("easy to pass" in line and "entity-pronoun" in line for line in words.observations)
    mean = float(relations["null_heads"].mean())
    assert words.short().endswith(f"; shuffled targets would classify {mean:.2g}.")
    relations["member_beyond_null"].loc[{"layer": 3, "head": 1}] = False
    said = "\n".join(describe("relations", relations).observations)
    assert "the others may promote a relation's targets without regard to the source" in said


def test_nothing_found_is_told_as_nothing(make_relations: Callable[..., xr.Dataset]) -> None:
    words = describe("relations", make_relations(3, 2, seed=1))
    assert all("no head" in line for line in words.detail[:4])
    assert "No head has more than one category." in words.observations
    assert "No head suppresses the targets of a relation." in words.observations
    assert words.observations[0].startswith("0 of 6 heads (0 %) have at least one category and 6 have none.")


def test_a_layer_without_heads_is_left_out_of_the_count(make_relations: Callable[..., xr.Dataset]) -> None:
    assert " of 261 heads " in describe("relations", make_relations(missing=2)).observations[0]


def test_the_way_norms_were_treated_is_said(relations: xr.Dataset) -> None:
    assert "Norms are left out, as published." in describe("relations", relations).overview
    origin = json.loads(relations.attrs["provenance"])
    origin["parameters"] = {"norms": "folded", "embedding": "raw"}
    folded = describe("relations", relations.assign_attrs(provenance=json.dumps(origin)))
    assert "Norms are folded in (their gains)." in folded.overview
    assert not any("first MLP" in line for line in folded.caveats)


# ---- copying alone, the control without a head ---------------------------------------------------------------------


def copying_sentence(**copied: float) -> str:
    dataset = relations_dataset(8, 3)
    values = [copied.get(str(name).replace("-", "_"), 0.01) for name in dataset["relation"].values]
    dataset["copied_score"] = ("relation", np.array(values, dtype=np.float32))
    return next(line for line in describe("relations", dataset).observations if "only copied" in line)


def test_relations_that_copying_passes_are_named_with_their_heads() -> None:
    said = copying_sentence(copying=1.0, antonym=0.3)
    assert "would score above 0.15 for 2 of 7 relations (copying 1.00 and antonym 0.30)." in said
    dataset = relations_dataset(8, 3)
    over = dataset["score"].sel(relation=["copying", "antonym"]) > 0.15
    beyond = over & (dataset["score"].sel(relation=["copying", "antonym"]) > np.array([1.0, 0.3])[:, None, None])
    passing, more = (int(which.any("relation").sum()) for which in (over, beyond))
    assert passing and more
    assert f"{passing} heads do so for one of these, {more} with a higher score than copying." in said


def test_where_copying_passes_nothing_that_is_said() -> None:
    assert copying_sentence() == "A head that only copied what it reads would score above 0.15 for none of 7 relations."


def test_an_atlas_without_the_control_says_nothing_of_it() -> None:
    assert "only copied" not in describe("relations", relations_dataset(8, 3)).text()


def test_the_papers_relations_stand_next_to_ours() -> None:
    ds = relations_dataset()
    text = describe("relations", ds).text()
    assert f"a shuffle would classify {float(ds['null_heads_published'].mean()):.2g} heads" in text
    assert "not among its twenty" in text
    old = ds.drop_vars(["null_heads", "null_heads_published"])
    assert "was not counted by the version that made this map" in describe("relations", old).text()


def test_a_shuffle_that_classifies_as_many_heads_is_no_finding(relations: xr.Dataset) -> None:
    some = int((counts(relations) > 0).sum())
    for many, like in ((some, "no more heads than by chance"), (some - 1, "some heads hold relations")):
        changed = relations.assign(null_heads=relations["null_heads"] * 0 + many)
        assert like in describe("relations", changed).interpretation[0]
