"""A tiny model, texts and answered questions for it, and the command that builds its atlas.

Two studies are asked for, four maps come of it: profile (of texts), and answers, spectral and detection (of questions),
each from the one before, and a fitted detector beside them. 16 + 60 + 60 examples in 4 + 3 + 3 shards.
"""

from __future__ import annotations

import json
from pathlib import Path

import answered
from planted import save_tiny, tiny_passages

from headwise.studies.registry import with_dependencies

TEXTS, REPEATS, QUESTIONS = 12, 4, 60
SETTINGS = {
    "profile.repeats": REPEATS, "profile.period": 10, "profile.shard": 4,
    "answers.shard": 20, "spectral.shard": 20, "spectral.shuffles": 200,
}  # fmt: skip
SHARDS = {"profile": 4, "answers+spectral": 3}  # given answers and spectral share a pass


class Scene:
    """The files that a build is given, made once."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.model = save_tiny(folder / "model", layers=2, heads=2, kv_heads=1)
        self.texts, self.questions = folder / "texts.jsonl", folder / "questions.jsonl"
        rows = [{"id": item.id, "text": item.text, "register": item.register} for item in self._passages()]
        self.texts.write_text("\n".join(json.dumps(row) for row in rows))
        answered.write(self.questions, answered.rows(QUESTIONS))

    def _passages(self):
        return tiny_passages(TEXTS, tokens=(12, 24)).items

    def arguments(
        self, atlas: str | Path, studies: str = "profile,spectral", *more: str, **settings: object
    ) -> list[str]:
        """What is typed after `headwise`; settings as profile__shard=2."""
        made = with_dependencies(studies.split(","))
        those = {name: value for name, value in SETTINGS.items() if name.partition(".")[0] in made}
        those |= {name.replace("__", "."): value for name, value in settings.items()}
        given = [part for name, value in those.items() for part in ("--set", f"{name}={value}")]
        given += ["--data", str(self.texts)] if "profile" in made else []
        given += ["--questions", str(self.questions)] if "answers" in made else []
        return [
            "build", str(self.model), "--studies", studies, "--device", "cpu", "--json", "-o", str(atlas), *given, *more,
        ]  # fmt: skip
