"""Which checkpoints of a training run are there, and at which step was each of them saved?

    find_checkpoints("runs/seed0", "step-*")                                 folders in a folder
    find_checkpoints("EleutherAI/pythia-160m", ["step1000", "step4000"])     revisions on the hub
    find_checkpoints(None, {0: "init", 500: "run/checkpoint-500"})           models by step, where names do not tell it

The step is the number after "step", "checkpoint", "ckpt" or "iter" in the name (``stage1-step1000-tokens5B`` is step 1,000),
else the number at its end. A name without such a number, or with several, is refused: the user then gives the steps.

Losses are read from ``trainer_state.json``, which transformers' Trainer leaves in each checkpoint: of the entry of that step
every number whose name contains "loss". Checkpoints without the file have no losses.

Cost: names and configs are read, no weights.
"""

from __future__ import annotations

import glob
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headwise.core.errors import DataError, ModelError
from headwise.core.parsing import parse
from headwise.model import read_card

__all__ = ["TrainingCheckpoint", "find_checkpoints", "recorded_losses", "refuse_unlike", "step_of"]

Checkpoints = str | Path | Sequence[str | Path] | Mapping[int, Any]
_AFTER_A_WORD = re.compile(r"(?:step|checkpoint|ckpt|iter(?:ation)?)s?[-_ =]?(\d+)", re.IGNORECASE)
_AT_THE_END = re.compile(r"(\d+)$")
_PATTERN = re.compile(r"[*?\[]")
TRAINER_STATE = "trainer_state.json"


@dataclass(frozen=True)
class TrainingCheckpoint:
    """One state of a model in training."""

    step: int
    model: Any  # what `load` takes
    revision: str | None = None  # of the hub

    @property
    def name(self) -> str:
        """As the user gave it."""
        return self.revision or (str(self.model) if isinstance(self.model, str | Path) else type(self.model).__name__)


def find_checkpoints(model: str | Path | None, checkpoints: Checkpoints) -> list[TrainingCheckpoint]:
    """The checkpoints of a run, in the order of their steps.

    Args:
        model: the folder of the run, or the model's hub id; None: each checkpoint is a model of its own.
        checkpoints: a pattern of folder names; or names of folders or revisions, as a list or comma-separated; or a mapping
            from steps to names (or to models in memory), which text can give as ``0=init,500=final``.

    Returns:
        At least two.

    Examples:
        >>> [one.step for one in find_checkpoints("EleutherAI/pythia-160m", "step512,step8,step143000")]
        [8, 512, 143000]
        >>> find_checkpoints("EleutherAI/pythia-160m", "0=step0,10=main")[1].revision
        'main'
    """
    if isinstance(model, str | Path) and not _on_hub(model) and not Path(model).expanduser().is_dir():
        raise ModelError(f"There is no folder {str(model)!r} of checkpoints; check the path.")
    named = _by_step(model, checkpoints)
    found: dict[int, TrainingCheckpoint] = {}
    for step, name in named:
        one = _checkpoint(step, model, name)
        if step in found:
            raise DataError(
                f"Both {found[step].name} and {one.name} are checkpoints of step {step}; leave one out, or give the steps, as "
                f"in --checkpoints {step}={found[step].name},{step + 1}={one.name}."
            )
        found[step] = one
    if len(found) < 2:
        names = ", ".join(one.name for one in found.values()) or "none"
        raise DataError(
            f"An atlas over training needs at least two checkpoints, and there is {names}; name more of them, or build an "
            "ordinary atlas of one without --checkpoints."
        )
    return [found[step] for step in sorted(found)]


def _by_step(model: str | Path | None, checkpoints: Checkpoints) -> list[tuple[int, Any]]:
    if isinstance(checkpoints, Mapping):
        return [(_whole(step), name) for step, name in checkpoints.items()]
    given = [checkpoints] if isinstance(checkpoints, str | Path) else list(checkpoints)
    names = [part.strip() for name in given for part in str(name).split(",") if part.strip()]
    explicit = [re.fullmatch(r"(\d+)=(.+)", name) for name in names]
    if names and all(explicit):
        return [(int(match[1]), match[2]) for match in explicit if match]
    expanded = [one for name in names for one in _expanded(model, name)]
    return [(step_of(name), name) for name in expanded]


def _whole(step: Any) -> int:
    if isinstance(step, bool) or not isinstance(step, int) or step < 0:
        raise DataError(f"A step is a whole number from 0 on, not {step!r}; give {{step: checkpoint}}.")
    return step


def _expanded(model: str | Path | None, name: str) -> list[str]:
    """The folders that a pattern matches; a name without a pattern is itself."""
    if not _PATTERN.search(name):
        return [name]
    if model is not None and _on_hub(model):
        raise DataError(
            f"{name!r} is a pattern of folders, but there is no folder {model}; revisions on the hub are not listed here, so "
            "name them, as in --checkpoints step1000,step2000."
        )
    root = Path(model).expanduser() if model is not None else Path()
    found = sorted(path for path in glob.glob(name, root_dir=root) if (root / path).is_dir())
    if not found:
        raise DataError(f"No folder in {root} matches {name!r}; check the pattern, in quotes, such as 'checkpoint-*'.")
    return found


def _checkpoint(step: int, model: str | Path | None, name: Any) -> TrainingCheckpoint:
    if not isinstance(name, str | Path):
        return TrainingCheckpoint(step, name)
    if model is None:
        return TrainingCheckpoint(step, str(name))
    if _on_hub(model):
        return TrainingCheckpoint(step, str(model), str(name))
    return TrainingCheckpoint(step, str(Path(model).expanduser() / name))


def _on_hub(model: str | Path) -> bool:
    """Whether a name is OWNER/NAME, with no such folder here."""
    return re.fullmatch(r"[\w.-]+/[\w.-]+", str(model)) is not None and not Path(model).expanduser().is_dir()


def step_of(name: str) -> int:
    """The training step in the name of a checkpoint.

    Args:
        name: of a folder or a revision.

    Returns:
        The step.

    Examples:
        >>> [step_of(name) for name in ("checkpoint-500", "stage1-step1000-tokens5B", "runs/seed0/step-064", "00200")]
        [500, 1000, 64, 200]
    """
    last = Path(name).name
    found = {int(number) for number in _AFTER_A_WORD.findall(last)}
    if not found and (end := _AT_THE_END.search(last)):
        found = {int(end[1])}
    if len(found) != 1:
        what = f"several step numbers ({', '.join(map(str, sorted(found)))})" if found else "no step number"
        raise DataError(
            f"The checkpoint {name!r} has {what} in its name; give the step, as in --checkpoints 0={name},..."
        )
    return found.pop()


def refuse_unlike(checkpoints: Sequence[TrainingCheckpoint], *, trust_remote_code: bool = False) -> None:
    """Refuse checkpoints whose configs describe different shapes: they are not of one run. Models in memory are read too."""
    shapes = {one.step: _shape(one, trust_remote_code) for one in checkpoints}
    first = checkpoints[0]
    for one in checkpoints[1:]:
        if shapes[one.step] != shapes[first.step]:
            raise ModelError(
                f"{one.name} has {_described(shapes[one.step])}, and {first.name} has {_described(shapes[first.step])}; "
                "checkpoints of one run have the same shape, so build two atlases and use headwise compare."
            )


def _shape(one: TrainingCheckpoint, trust_remote_code: bool) -> dict[str, int]:
    card = getattr(one.model, "card", None) or read_card(
        one.model, revision=one.revision, trust_remote_code=trust_remote_code
    )
    return {"layers": card.layers, "heads per layer": card.heads, "hidden units": card.hidden_size,
            "tokens in its vocabulary": card.vocabulary_size}  # fmt: skip


def _described(shape: dict[str, int]) -> str:
    return ", ".join(f"{count:,} {what}" for what, count in shape.items())


def recorded_losses(checkpoint: TrainingCheckpoint) -> dict[str, float]:
    """The losses that the trainer recorded at this step; none where it left no record.

    Args:
        checkpoint: in a folder; others have none.

    Returns:
        Name -> loss, such as ``eval_loss``.
    """
    if not isinstance(checkpoint.model, str | Path):
        return {}
    file = Path(checkpoint.model).expanduser() / TRAINER_STATE
    if not file.is_file():
        return {}
    try:
        log = parse(file.read_bytes(), dict[str, Any]).get("log_history")
        entries = [one for one in log if one.get("step") == checkpoint.step] if isinstance(log, list) else []
    except (ValueError, AttributeError) as error:
        raise DataError(f"{file} is not a record of transformers' Trainer ({error}); delete or repair it.") from error
    return {
        name: float(value)
        for entry in entries
        for name, value in entry.items()
        if "loss" in name and isinstance(value, int | float) and math.isfinite(value)
    }
