"""Do two answers say the same? A second model decides: each must entail the other.

Farquhar et al. (Nature 630, 2024) put the question before both answers and ask a cross-encoder (DeBERTa, fitted to pairs of
sentences) for entailment in both directions; an answer joins the first group whose first member it agrees with. The model is
a folder on this machine that `transformers` loads as a sequence classifier with a label named "entailment".

Cost: a pass of that model for each ordered pair of different answers that is asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from headwise.core.errors import ModelError
from headwise.model.digest import weights_digest

LABEL = "entailment"


class Entailment:
    """An entailment model in a local folder.

    Args:
        folder: with the model and its tokenizer.
        device: where it runs.
    """

    def __init__(self, folder: str | Path, device: torch.device | None = None):
        path = Path(folder).expanduser()
        if not (path / "config.json").is_file():
            raise ModelError(
                f"There is no model in {path}; give uncertainty.entailment the folder of a sequence classifier, with its "
                "config.json and its tokenizer, or leave it out to compare answers by rules."
            )
        try:
            self._tokenizer: Any = AutoTokenizer.from_pretrained(path, local_files_only=True)
            model: Any = AutoModelForSequenceClassification.from_pretrained(path, local_files_only=True)
        except (OSError, ValueError) as cause:
            raise ModelError(f"The model in {path} cannot be loaded as a sequence classifier: {cause}") from cause
        labels = {int(index): str(name).lower() for index, name in model.config.id2label.items()}
        chosen = [index for index, name in labels.items() if name == LABEL]
        if len(chosen) != 1:
            raise ModelError(
                f"The model in {path} has the labels {', '.join(labels.values())}, and none of them is {LABEL!r}; choose a "
                "model of natural-language inference."
            )
        self._label, self._model, self.name = chosen[0], model.eval().to(device or torch.device("cpu")), path.name

    @cached_property
    def digest(self) -> str:
        """Of its weights."""
        return weights_digest(self._model)

    def groups(self, question: str, answers: Sequence[str]) -> list[int]:
        """The number of each answer's group, in the order they first appear."""
        first: list[str] = []
        known: dict[str, int] = {}
        for answer in answers:
            if answer not in known:
                same = next((group for group, other in enumerate(first) if self.agree(question, other, answer)), None)
                known[answer] = len(first) if same is None else same
                if same is None:
                    first.append(answer)
        return [known[answer] for answer in answers]

    @torch.no_grad()
    def agree(self, question: str, one: str, other: str) -> bool:
        """Whether each of two answers entails the other."""
        texts = [f"{question} {answer}" for answer in (one, other)]
        given = self._tokenizer(texts, texts[::-1], padding=True, truncation=True, return_tensors="pt")
        logits = self._model(**given.to(self._model.device)).logits  # (2, label)
        return bool((logits.argmax(dim=-1) == self._label).all())
