"""The benchmark end to end on a tiny model: sets, one that cannot be judged, a second run, a killed one, the command."""

import json

import pytest
from answered import rows, write
from planted import planted_profile_model
from typer.testing import CliRunner

import headwise as hw
from headwise import bench as benchmark
from headwise.cli.main import app
from headwise.core.errors import DataError, StudyError
from headwise.studies import UncertaintyOptions

PLAIN = {"uncertainty": UncertaintyOptions(samples=0, folds=2)}  # answers that were given cannot be sampled


@pytest.fixture(scope="module")
def model():
    return planted_profile_model()


@pytest.fixture(scope="module")
def sets(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sets")
    mostly = rows(30, "correct")[:28] + [{**row, "id": f"w{row['id']}", "label": "wrong"} for row in rows(2)]
    made = {
        "first": rows(60),
        "second": [{**row, "question": f"{row['question']} the"} for row in rows(64)],
        "easy": mostly,
    }
    return [str(write(folder / f"{name}.jsonl", some)) for name, some in made.items()]


@pytest.fixture(scope="module")
def run(model, sets, tmp_path_factory):
    folder = tmp_path_factory.mktemp("bench") / "bench"
    return hw.bench_detection(model, sets, output=folder, options=PLAIN), folder


def test_every_set_is_an_atlas_and_the_results_are_written(run):
    found, folder = run
    assert found.sets == ["first", "second"]
    assert found.undecided == {"easy": "it has 2 wrong and 28 correct answers, and at least 20 of each are needed"}
    for name, studies in (("first", ["answers", "uncertainty"]), ("easy", ["answers"])):
        assert sorted(hw.Atlas.open(folder / name).studies) == studies
    own = hw.Atlas.open(folder / "first")["uncertainty"].sel(detector="RAUQ")
    assert found.frame("first").loc["RAUQ", "auroc"] == own["auroc"].item()
    assert {"report.html", "results.csv", "results.tex"} <= {file.name for file in folder.iterdir()}
    memory = json.loads((folder / benchmark.MEMORY).read_text())
    assert memory["first"]["uncertainty"] > 0 and "uncertainty" not in memory["easy"]


def test_a_finished_benchmark_is_not_repeated(run, model, sets):
    found, folder = run
    created = {name: hw.Atlas.open(folder / name).provenance("uncertainty").created for name in found.sets}
    again = hw.bench_detection(model, sets, output=folder, options=PLAIN)
    assert {name: hw.Atlas.open(folder / name).provenance("uncertainty").created for name in found.sets} == created
    assert again.frame().equals(found.frame())


def test_a_killed_benchmark_goes_on(run, model, sets, tmp_path, monkeypatch):
    found, _ = run
    build, calls = benchmark.build, []

    def dies(*args, **options):
        calls.append(options["output"].name)
        if len(calls) == 4:  # the second set's scores
            raise KeyboardInterrupt
        return build(*args, **options)

    monkeypatch.setattr(benchmark, "build", dies)
    with pytest.raises(KeyboardInterrupt):
        hw.bench_detection(model, sets, output=tmp_path, options=PLAIN)
    created = hw.Atlas.open(tmp_path / "first").provenance("uncertainty").created
    monkeypatch.setattr(benchmark, "build", build)
    resumed = hw.bench_detection(model, sets, output=tmp_path, options=PLAIN)
    assert hw.Atlas.open(tmp_path / "first").provenance("uncertainty").created == created
    assert resumed.frame()["auroc"].equals(found.frame()["auroc"])


def test_what_cannot_be_a_benchmark_is_refused(model, sets, tmp_path):
    with pytest.raises(DataError, match="at least one question set"):
        hw.bench_detection(model, [], output=tmp_path)
    with pytest.raises(DataError, match=r"no question set of that name\. Did you mean 'sciq'"):
        hw.bench_detection(model, ["scicq"], output=tmp_path)
    with pytest.raises(DataError, match="would be called 'first'"):
        hw.bench_detection(model, [sets[0], sets[0]], output=tmp_path)
    with pytest.raises(DataError, match="No question set could be judged \\(easy: it has 2 wrong"):
        hw.bench_detection(model, sets[2:], output=tmp_path / "easy")


def test_the_command(run, model, sets, monkeypatch):
    found, folder = run
    monkeypatch.setattr(benchmark, "load", lambda *given, **options: model)
    command = ["bench", "detection", "--sets", ",".join(sets), "-o", str(folder), "--set", "uncertainty.samples=0"]
    done = CliRunner().invoke(app, [*command, "--set", "uncertainty.folds=2", "--json"])
    assert done.exit_code == 0, done.output
    printed = json.loads(done.stdout)
    assert list(printed["sets"]) == ["first", "second"] and printed["undecided"]["easy"]
    assert [one["score"] for one in printed["pooled"]] == found.ordered()
    plain = CliRunner().invoke(app, [*command, "--set", "uncertainty.folds=2"])
    assert "easy: not decidable, since it has 2 wrong" in plain.stdout and "report.html" in plain.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["detector"], "There is no benchmark 'detector'. Did you mean 'detection'?"),
        (["detection", "--set", "profile.period=8"], "and not 'profile'"),
        (["detection", "--redo", "profile"], "and not 'profile'"),
        (["detection", "--sets", "trivia"], "Did you mean 'triviaqa'"),
    ],
)
def test_the_command_refuses(arguments, words, tmp_path):
    with pytest.raises((DataError, StudyError), match=words.replace("?", "\\?")):
        CliRunner().invoke(
            app, ["bench", *arguments, "-o", str(tmp_path / "b")], standalone_mode=False, catch_exceptions=False
        )
