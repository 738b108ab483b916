"""Scores on several sets: pooled numbers by hand, tables, figures, words, and a page that nothing can break out of."""

import json
import re

import numpy as np
import pytest
from synthetic.uncertainty import planted_readings, uncertainty_dataset

from headwise.analysis import benchmark_figures, describe_benchmark, pooled_benchmark
from headwise.analysis.benchmark_display import LOGPROB, beating
from headwise.analysis.detection_benchmark import QUESTION, escape_latex
from headwise.core.errors import AtlasError, DataError
from headwise.stats import friedman_nemenyi
from headwise.studies.uncertainty.finalize import finalize
from headwise.studies.uncertainty.spec import UncertaintyOptions
from headwise.web.benchmark_report import write


@pytest.fixture(scope="module")
def sets():
    options = UncertaintyOptions(samples=4)
    made = {}
    for number, name in enumerate(("sciq", "nq_open", "<b>mine</b>")):
        readings, answers = planted_readings(count=160, disagreement=0.9, seed=number + 1)
        made[name] = finalize(readings, answers, options).assign_attrs(
            provenance=uncertainty_dataset().attrs["provenance"]
        )
    return made


@pytest.fixture(scope="module")
def found(sets):
    return pooled_benchmark(sets, {"gsm8k": "it has 3 wrong & 80 correct answers"})


def test_pooled_numbers_are_means_over_sets(found, sets):
    for metric in ("auroc", "auprc", "prr", "ece", "gain_logprob"):
        values, lows = (
            np.array([one[f"{metric}{end}"].sel(detector="RAUQ").item() for one in sets.values()])
            for end in ("", "_low")
        )
        row = found.frame().loc["RAUQ"]
        assert row[metric] == pytest.approx(values.mean())
        assert row[f"{metric}_low"] == pytest.approx(values.mean() - np.sqrt(((values - lows) ** 2).sum()) / 3)
        assert (
            row[f"{metric}_high"] - row[f"{metric}_low"]
            < sets["sciq"][f"{metric}_high"].sel(detector="RAUQ").item() - lows[0]
        )


def test_a_score_of_disagreement_wins_and_chance_does_not(found):
    best = found.ordered()[:4]
    assert "Discrete semantic entropy" in best or "SelfCheck" in best
    better = beating(found, None, "gain_logprob")
    assert "SelfCheck" in better and "RAUQ" not in better and "Length" not in better
    assert found.frame().loc["RAUQ", "auroc_low"] < 0.5 < found.frame().loc["RAUQ", "auroc_high"]


def test_where_nothing_is_to_be_found_no_pooled_gain_is(sets):
    """Scores that know nothing: rarely any pooled gain has q < 0.05."""
    some = 0
    for seed in range(4):
        readings, answers = planted_readings(count=80, seed=100 + seed)
        other, others = planted_readings(count=80, seed=200 + seed)
        options, origin = UncertaintyOptions(samples=4), uncertainty_dataset().attrs["provenance"]
        pair = {
            "a": finalize(readings, answers, options).assign_attrs(provenance=origin),
            "b": finalize(other, others, options).assign_attrs(provenance=origin),
        }
        some += bool(beating(pooled_benchmark(pair), None, "gain_logprob"))
    assert some <= 1  # P(2 of 4 or more at 5 %) is 1.4 %


def test_the_ranking_is_friedmans_over_scores_that_read_the_model(found, sets):
    table = found.table
    scored = table["kind"].values != QUESTION
    assert np.isnan(table["mean_rank"].values[~scored]).all() and np.isfinite(table["mean_rank"].values[scored]).all()
    again = friedman_nemenyi(table["auroc"].transpose("question_set", "detector").values[:, scored])
    assert table.attrs["friedman_p"] == again.p and table["mean_rank"].values[scored] == pytest.approx(again.mean_rank)
    assert "mean_rank" not in pooled_benchmark({"one": sets["sciq"]}).table  # one set has no ranking over sets


def test_costs_count_from_a_plain_answer(found):
    costs = found.frame()["seconds_ratio"]
    assert (
        costs[LOGPROB] == 1 and costs["RAUQ"] == pytest.approx(3) and costs["SelfCheck"] > costs["RAUQ"]
    )  # 0.1 and 0.2 s


def test_a_score_that_one_set_lacks_is_left_out_and_named(sets):
    without = sets["sciq"].isel(detector=sets["sciq"]["detector"].values != "RAUQ")
    found = pooled_benchmark({"a": without, "b": sets["nq_open"]})
    assert found.table.attrs["left_out"] == ["RAUQ"] and "RAUQ" not in found.ordered()
    assert "left out: RAUQ" in describe_benchmark(found).text()


def test_unlike_models_and_no_set_are_refused(sets):
    other = json.loads(sets["sciq"].attrs["provenance"])
    other["model"]["digest"] = "another"
    with pytest.raises(AtlasError, match="answered by different models"):
        pooled_benchmark({"a": sets["sciq"], "b": sets["nq_open"].assign_attrs(provenance=json.dumps(other))})
    with pytest.raises(DataError, match="No question set could be judged \\(gsm8k: too few\\)"):
        pooled_benchmark({}, {"gsm8k": "too few"})


def test_words_name_what_wins_what_does_not_and_what_could_be_seen(found):
    words = describe_benchmark(found)
    assert len(words.short().split()) <= 40
    text = words.text()
    assert "gsm8k is not decidable: it has 3 wrong & 80 correct answers." in text
    assert all(name in text for name in found.sets) and "80 % power" in text and "Nemenyi" in text
    assert all(number.text in text or number.text in words.short() for number in words.numbers)


def test_figures_hold_the_table(found):
    figures = benchmark_figures(found)
    area = figures["scores"].panel("auroc")
    assert list(area.y.labels) == found.ordered() and area.values == pytest.approx(
        found.frame()["auroc"].values, abs=1e-6
    )
    ranks = figures["scores"].panel("ranks")
    assert ranks.high - ranks.low == pytest.approx(found.table.attrs["critical_difference"], rel=1e-5)
    distinguished = found.table.attrs["critical_difference"] < np.isfinite(found.frame()["mean_rank"]).sum() - 1
    assert distinguished != ("With 3 sets no two scores can be distinguished" in " ".join(figures["scores"].notes))
    assert len(figures["risk"].panels) == 3 and LOGPROB in [curve.label for curve in figures["risk"].panels[0].curves]


def test_csv_and_latex_hold_every_number(found, tmp_path):
    frame = found.long_frame()
    assert set(frame["question_set"]) == {*found.sets, "pooled"} and len(frame) == 4 * len(found.ordered())
    latex = found.latex()
    assert latex.count(r"\\") == len(found.ordered()) + 2 and r"\toprule" in latex and r"nq\_open" in latex
    assert all(f"{value:.3f}" in latex for value in found.frame()["auprc"]) and "nan" not in latex
    body = latex.partition("\\midrule")[2].partition("\\bottomrule")[0]
    assert {line.count(" & ") for line in body.strip().splitlines()} == {len(found.sets) + 5}
    assert escape_latex("a_b{c}\\") == r"a\_b\{c\}\textbackslash{}"


def test_json_is_json(found):
    plain = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert plain["undecided"]["gsm8k"] and len(plain["pooled"]) == len(found.ordered())


def test_the_page_is_one_file_and_escaped(found, tmp_path):
    page = write(found, tmp_path / "report.html", memory={"sciq": {"answers": 10**9, "uncertainty": 2 * 10**9}})
    text = page.read_text(encoding="utf-8")
    assert "<b>mine" not in text and "&lt;b&gt;mine&lt;/b&gt;" in text and "wrong &amp; 80" in text
    assert "<script" not in text and not re.search(r'(src|href)="(?!data:|https://)', text)
    assert text.count("<img ") == 3 and "1.0 GB" in text and "2.0 GB" in text
    assert text.count("<details>") == 3 and all(name in text for name in found.ordered())


def test_a_hostile_link_is_no_link(sets, tmp_path):
    bad = sets["sciq"].assign_coords(link=("detector", ["javascript:alert(1)"] * sets["sciq"].sizes["detector"]))
    page = write(pooled_benchmark({"a": bad}), tmp_path / "page.html")
    assert "javascript:" not in page.read_text(encoding="utf-8")


def test_the_headline_does_not_set_the_smallest_log_probability_against_itself(sets):
    def others_at_chance(one):
        others = (one["detector"] != LOGPROB) & (one["kind"] != QUESTION)
        values = {"auroc": 0.4, "auroc_low": 0.3, "auroc_high": 0.5, "gain_logprob": -0.1}
        return one.assign({name: one[name].where(~others, value) for name, value in values.items()})

    short = describe_benchmark(pooled_benchmark({name: others_at_chance(one) for name, one in sets.items()})).short()
    assert short.startswith("The smallest log-probability is best (AUROC ")
    assert "no other score beats it (q < 0.05)." in short
