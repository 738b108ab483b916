"""The benchmark scripts: a wrong number in a table is a wrong number. Peers are played by a small script here."""

import json
import os
import sys
from importlib import import_module
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig

from headwise.seam import Structure

FOLDER = Path(__file__).parents[1] / "benchmarks"
SHAPE = "2x9"


@pytest.fixture(autouse=True)
def scripts(monkeypatch):
    """The scripts import each other by their bare names, as when one of them is run."""
    monkeypatch.syspath_prepend(str(FOLDER))


@pytest.fixture
def model():
    torch.manual_seed(0)
    config = LlamaConfig(
        hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        vocab_size=60,
    )  # fmt: skip
    return AutoModelForCausalLM.from_config(config, attn_implementation="sdpa").eval()


@pytest.fixture
def readings(model):
    tokens = import_module("tokens")
    return import_module("columns").ours(Structure(model), tokens.tokens_like_text(60, *tokens.shape_of(SHAPE)))


@pytest.fixture
def peers(tmp_path, monkeypatch):
    """Puts a `python` in the place of a peer's: a shell script that says or does what it is given."""
    monkeypatch.setenv("HEADWISE_BENCH_PEERS", str(tmp_path))

    def put(name, script):
        place = tmp_path / name / "bin" / "python"
        place.parent.mkdir(parents=True)
        place.write_text(f"#!{sys.executable}\nimport sys, json, shutil\n{script}\n", encoding="utf-8")
        place.chmod(0o755)

    return put


def row(readings, tmp_path):
    return import_module("peers.comparison").peer_row("nnsight", SHAPE, tmp_path, readings, 3)


def answering(tmp_path, readings):
    """A peer whose readings are these; plain takes 2 s and 500 MB, observed 5 s and 800 MB."""
    save = import_module("safetensors.torch").save_file
    kept = {name: value.contiguous() for name, value in readings._asdict().items()}
    save(kept, tmp_path / "kept.safetensors")
    times = {"seconds": {"plain": [2, 2, 2], "observed": [4, 5, 7]}, "versions": {"torch": "1", "transformers": "2"}}
    return f"""
if "--memory" in sys.argv:
    print("noise"); print(json.dumps({{"memory": 500 if sys.argv[-1] == "plain" else 800}}))
else:
    shutil.copy({str(tmp_path / "kept.safetensors")!r}, sys.argv[sys.argv.index("--readings") + 1])
    print("Loading"); print({json.dumps(times)!r})
"""


def test_our_columns_are_those_of_eager_maps(model, readings):
    tokens = import_module("tokens")
    ids = tokens.tokens_like_text(60, *tokens.shape_of(SHAPE))
    model.set_attn_implementation("eager")
    with torch.no_grad():
        maps = torch.stack(model(ids, output_attentions=True).attentions)
    torch.testing.assert_close(readings.sums, maps.sum(dim=3), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(readings.diagonal, maps.diagonal(dim1=-2, dim2=-1), atol=1e-5, rtol=1e-5)


def test_tokens_repeat_as_words_do_and_are_the_same_each_time():
    draw = import_module("tokens").tokens_like_text
    ids = draw(1000, 4, 500)
    assert ids.shape == (4, 500) and ids.equal(draw(1000, 4, 500))
    share = (ids == 0).float().mean()
    expected = (1 / 2.7) / (1 / (torch.arange(1000) + 2.7)).sum()
    assert abs(share - expected) < 0.02 and ids.max() > 500


def test_a_peer_that_agrees_gets_its_ratios(readings, peers, tmp_path):
    peers("nnsight", answering(tmp_path, readings))
    found = row(readings, tmp_path)
    assert (found["ratio"], found["lowest"], found["highest"], found["seconds"]) == (2.5, 2.0, 3.5, 5)
    assert (found["memory"], found["memory_ratio"], found["difference"]) == (800, 1.6, 0.0)


def test_a_peer_that_disagrees_ends_the_benchmark(readings, peers, tmp_path):
    wrong = readings._replace(diagonal=readings.diagonal + 0.01)
    peers("nnsight", answering(tmp_path, wrong))
    with pytest.raises(SystemExit, match="one of the two is wrong"):
        row(readings, tmp_path)


def test_a_missing_number_is_no_agreement(readings):
    comparison = import_module("peers.comparison")
    hole = readings.sums.clone()
    hole[0, 0, 0, 0] = torch.nan
    assert comparison.difference(readings._replace(sums=hole), readings) == float("inf")
    assert comparison.difference(readings._replace(sums=readings.sums[:1]), readings) == float("inf")


def test_a_peer_that_cannot_run_gets_a_row_that_says_so(readings, peers, tmp_path):
    peers("nnsight", "sys.exit('ValueError: no such | architecture')")
    found = row(readings, tmp_path)
    assert found["refused"] == "could not run the model (ValueError: no such / architecture)"
    assert "ratio" not in found
    table = import_module("cpu").table([found])
    assert "no such / architecture" in table and table.splitlines()[-1].count("|") == 8


def test_a_peer_without_environment_gets_a_row_that_says_so(readings, peers, tmp_path):
    assert "is not there" in row(readings, tmp_path)["refused"]


def test_an_environment_gets_the_projects_torch():
    wanted = import_module("peers.environment").requirements("transformer-lens")
    torch_pin, transformers_pin, peer = wanted
    pins = (FOLDER.parent / "constraints.txt").read_text().split()
    assert torch_pin in pins and transformers_pin in pins and torch_pin.startswith("torch==")
    assert peer.startswith("transformer-lens==")


def test_a_peer_that_cannot_be_imported_here_gets_no_number(model, readings):
    found = import_module("peers.in_process").peer_rows(model, {SHAPE: None}, {}, {SHAPE: readings}, lambda run: (1, 1))
    assert len(found) == 2 and all("ModuleNotFoundError" in one["refused"] and "ratio" not in one for one in found)


def test_sections_are_written_between_their_marks_only(tmp_path):
    write = import_module("page").write_section
    page = tmp_path / "page.md"
    page.write_text("# Page\n\n<!-- cpu -->\nold\n<!-- end of cpu -->\n\nWords that stay.\n")
    write("cpu", "new \\1", page)
    write("gpu", "more", page)
    assert page.read_text() == (
        "# Page\n\n<!-- cpu -->\nnew \\1\n<!-- end of cpu -->\n\nWords that stay.\n\n<!-- gpu -->\nmore\n<!-- end of gpu -->\n"
    )


def test_times_of_the_demo_come_from_finished_bars_only(tmp_path):
    demo, log = import_module("demo"), tmp_path / "log"
    bars = [
        "profile             ━━━━━━━━━━━━━━━ 100/100 examples, 0:01:37 elapsed, 0:00:00 left",
        "relations: reading  ━━━━━━━━━━━━━━━ 30/30   examples, 1:00:05 elapsed, 0:00:00 left",
        "probing             ━━━━━━━         200/466 examples, 0:01:28 elapsed, 0:00:40 left",
    ]
    log.write_text("pip said 3/3 things\n" + "\n".join(bars), encoding="utf-8")
    assert demo.parts(log.read_text(encoding="utf-8")) == {"profile": (100, 97), "relations": (30, 3605)}
    assert "| together | | 3702 s |" in demo.section(log)
    lines = [
        "profile: 0 of 100 examples",
        "profile: 50 of 100 examples, 0:01:00 elapsed",
        "profile: 100 of 100 examples, 0:02:00 elapsed",
    ]
    log.write_text("\n".join([*lines, "profile: 100 of 100 examples, done in 0:02:09", lines[1]]), encoding="utf-8")
    assert demo.parts(log.read_text(encoding="utf-8")) == {"profile": (100, 129)}
    log.write_text("nothing")
    with pytest.raises(SystemExit, match="no finished bar"):
        demo.section(log)


def test_growth_is_what_was_added_in_the_second_half():
    endurance = import_module("endurance")
    grown = [endurance.Mark(n, 10.0 + n, 100.0 + n) for n in range(10)]
    allocated, resident = endurance.growth(grown)
    assert allocated == pytest.approx(4 / 15) and resident == pytest.approx(4 / 105)


def test_a_short_endurance_run_marks_every_tenth(capsys):
    text, _ = import_module("endurance").report(20, "cpu")
    assert text.count("MB |") == 10 and "| 20 | unknown |" in text
    assert len(capsys.readouterr().out.splitlines()) == 10


def test_memory_of_this_process_is_told():
    clock = import_module("clock")
    assert 0 < clock.resident() <= clock.peak() * 1.05
    assert clock.peak() < os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e6


def test_reading_commands_are_shown_as_ratios_within_a_round(tmp_path):
    reading = import_module("reading")
    (tmp_path / "zarr.json").write_bytes(bytes(2_500_000))
    base, own = ([1.0, 2.0, 4.0], [2.0, 2.0, 2.0]), ([2.0, 4.0, 4.0], [1.0, 4.0, 3.0])
    found = reading.section({reading.BASE: base, "heads ATLAS": own}, tmp_path)
    row = "| `headwise heads ATLAS` | 4.00 s | **2.00** (1.00 to 2.00) | 3.00 s | **1.50** (0.50 to 2.00) | 1.5 |"
    assert row in found and "An atlas of 2.5 MB; medians of 3 rounds" in found


def test_scores_are_compared_with_those_of_the_peer_and_every_conversion_is_in_the_table():
    parity = import_module("parity")
    names = list(parity.CONVERSIONS)
    rows = [{"scores": dict.fromkeys(names, value)} for value in (1.0, 3.0)]
    own = {name: [1.0, 3.0] for name in names} | {"RAUQ": [1.0, 3.4]}
    difference = parity.compared(rows, own)
    assert difference["RAUQ"] == pytest.approx(0.1) and sum(value > 0 for value in difference.values()) == 1
    theirs = dict.fromkeys(("plain", "answer with attention", "attention again", "entropy", "p(True)", "samples"), 2.0)
    memory = {f"{whose} {what}": 1000.0 for whose in ("our", "their") for what in ("plain", "scores")}
    found = {
        "questions": 2, "samples": 3, "versions": {"lm_polygraph": "0.7.0", "transformers": "5.22.0"}, "memory": memory,
        "difference": difference, "theirs": theirs, "ours": dict.fromkeys(("answer", "pass", "p(True)", "samples"), 1.0),
        "made": "Made by hand.",
    }  # fmt: skip
    text = parity.section(found)
    assert all(f"| {name} | {score} |" in text for name, (score, _) in parity.CONVERSIONS.items())
    assert "| ... over a plain answer | 3.00 | 2.00 |" in text and "1.0e-01" in text
