import json
from dataclasses import asdict

import numpy as np
import pytest
import torch

import headwise as hw
from headwise.core.errors import DataError, StudyError
from headwise.training import SparsityRecipe, Texts, read_texts
from headwise.training.recipe import GecoController
from headwise.training.student import fit_of, visible_pairs


def test_the_bias_falls_to_zero_and_the_rate_goes_up_and_down():
    recipe = SparsityRecipe(steps=100, anneal=0.5, bias=8.0, warmup=10, learning_rate=1.0)
    assert recipe.bias_at(0) == 8.0
    assert recipe.bias_at(25) == 4.0
    assert recipe.bias_at(50) == recipe.bias_at(99) == 0.0
    assert recipe.rate_at(0) == pytest.approx(0.1)
    assert recipe.rate_at(50) == 1.0
    assert recipe.rate_at(99) == pytest.approx(0.1)


@pytest.mark.parametrize("wrong", [{"steps": 0}, {"distil": 1.5}, {"slack": 0.0}, {"anneal": -0.1}])
def test_a_recipe_that_makes_no_sense(wrong):
    with pytest.raises(StudyError, match=next(iter(wrong))):
        SparsityRecipe(**wrong)


def test_how_often_one_saves_does_not_make_another_recipe():
    assert SparsityRecipe(checkpoint=5).digest() == SparsityRecipe(checkpoint=50).digest()
    assert SparsityRecipe(seed=1).digest() != SparsityRecipe().digest()


def test_pressure_rises_under_the_slack_and_falls_quicker_over_it():
    controller = GecoController(1.0, slack=0.1, speed=0.1, max_weight=10.0)
    controller.update(0.0)
    risen = controller.weight
    assert risen > 1.0
    for _ in range(30):
        controller.update(1.0)
    assert controller.weight < 0.1
    assert GecoController(**asdict(controller)) == controller


def test_held_out_text_decides():
    controller = GecoController(1.0, slack=0.1, speed=0.1, max_weight=10.0)
    controller.update(0.0)
    controller.update_held_out(0.3)
    assert controller.estimated_excess == pytest.approx(0.3)
    before = controller.weight
    controller.update(0.0)
    assert controller.weight < before


def test_rows_are_drawn_by_seed_and_step_alone():
    texts = Texts({"a": np.arange(1000, dtype=np.int32), "b": np.arange(5000, 9000, dtype=np.int32)})
    first, again = (texts.draw(64, 10, seed=3, step=7) for _ in range(2))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, texts.draw(64, 10, seed=3, step=8))
    assert (np.diff(first, axis=1) == 1).all()
    share = (first[:, 0] >= 5000).mean()  # kinds by size: four to one
    assert 0.6 < share < 0.95
    even = texts.evenly_spaced("a", 5, 10)
    assert even[0, 0] == 0
    assert even[-1, -1] == 999


def test_files_become_kinds_once(tmp_path):
    model = hw.load()
    (tmp_path / "books.txt").write_text("Call me Ishmael. " * 30)
    (tmp_path / "notes.jsonl").write_text('{"text": "One note."}\n{"text": "Another note."}\n')
    texts = read_texts([tmp_path], model, tmp_path / "tokens")
    assert set(texts.kinds) == {"books", "notes"}
    assert (texts.kinds["notes"] == model.tokenizer.eos_token_id).sum() == 2
    kept = sorted((tmp_path / "tokens").iterdir())
    assert len(kept) == 2
    np.save(kept[0], np.arange(5, dtype=np.int32))
    assert read_texts([tmp_path / "books.txt"], model, tmp_path / "tokens").tokens == 5  # read, not made again


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("latin.txt", b"caf\xe9", r"latin\.txt is not UTF-8 text"),
        ("empty.txt", "  \n", "contains no text"),
        (
            "bad.jsonl",
            '{"text": "fine"}\nnot json\n',
            r"line 2 of .*bad\.jsonl is not JSON .*; write one JSON object per line",
        ),
        (
            "other.jsonl",
            '\n{"words": "fine"}\n',
            r"line 2 of .*other\.jsonl has no text; every line needs a field \"text\"",
        ),
    ],
)
def test_files_that_cannot_be_read(tmp_path, name, content, says):
    (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(DataError, match=says):
        read_texts([tmp_path / name], hw.load())


def test_a_missing_file_and_two_of_one_name(tmp_path):
    with pytest.raises(DataError, match="There is no file"):
        read_texts([tmp_path / "none.txt"], hw.load())
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "same.jsonl").write_text(json.dumps({"text": "text " * 50}))
    with pytest.raises(DataError, match="Two files are named same"):
        read_texts([tmp_path / "a", tmp_path / "b"], hw.load())


@pytest.mark.parametrize("distil", [0.0, 0.3, 1.0])
def test_the_fit_and_its_gradient_are_those_of_the_book(distil):
    random = torch.Generator().manual_seed(0)
    student, dense = (torch.randn(3, 7, 11, generator=random, dtype=torch.float64) for _ in range(2))
    ids = torch.randint(0, 11, (3, 7), generator=random)
    student.requires_grad_()
    mine, theirs = student[:, :-1].log_softmax(-1).flatten(0, 1), dense[:, :-1].log_softmax(-1).flatten(0, 1)
    loss = torch.nn.functional.nll_loss(mine, ids[:, 1:].flatten())
    distance = torch.nn.functional.kl_div(mine, theirs, log_target=True, reduction="batchmean")
    (expected,) = torch.autograd.grad(distil * distance + (1 - distil) * loss, student)
    found = fit_of(student, dense, ids, distil)
    (got,) = torch.autograd.grad(found.objective, student)
    assert torch.allclose(got, expected, atol=1e-8)
    assert found.loss.item() == pytest.approx(loss.item(), abs=1e-6)
    assert found.distance.item() == pytest.approx(distance.item(), abs=1e-6)


def test_visible_pairs_are_those_of_causality():
    assert visible_pairs(2, 3, 5) == 2 * 5 * 6
