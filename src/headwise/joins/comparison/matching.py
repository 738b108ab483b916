"""Can two studies be laid over each other? What their provenance says, and what to do about it.

- Other data: refused, for a change of the map may be a change of the data. Studies of a model's own answers (spectral,
  probing, functions) are an exception: both models got the same questions, and their answers differ because they do; then
  the data's name must agree, and the difference is said.
- Other options or seeds: compared, with a warning that names them.
- Other versions of what computes: said, no more.

This module does not know what the studies measure.
"""

from __future__ import annotations

from pathlib import PurePath

from headwise.atlas import Atlas, Provenance, difference
from headwise.figures.origin import model_name
from headwise.joins.comparison.result import StudyMatch

__all__ = ["called", "match_of", "models_of", "names_of"]

OWN_ANSWERS = ("answers", "spectral", "detection", "probing", "functions", "function_masking", "samples")


def match_of(study: str, title: str, one: Provenance, other: Provenance, *, unlike: bool) -> StudyMatch:
    """Whether this study of A may be held against the same of B; with ``unlike`` also where the data differ."""
    told = tuple(text for text in difference(one, other) if not text.startswith("model:"))
    status, reason = "compared", ""
    if one.data.get("digest") != other.data.get("digest"):
        same_name = one.data.get("name") == other.data.get("name")
        if study in OWN_ANSWERS and same_name:
            status, reason = "warned", "each model's own answers to the same questions"
        elif unlike:
            status, reason = (
                "warned",
                f"unlike data, compared because it was asked for ({_data(one)} against {_data(other)})",
            )
        else:
            status, reason = "refused", f"unlike data ({_data(one)} against {_data(other)}): build both on the same"
    options = [text for text in told if text.startswith(("parameters:", "seed:"))]
    if options and status != "refused":
        status, reason = "warned", "; ".join([*([reason] if reason else []), f"unlike options ({', '.join(options)})"])
    return StudyMatch(study, title, status, reason, told)


def models_of(one: Provenance, other: Provenance) -> tuple[str, ...]:
    """What the two models differ in, one sentence a fact; digests last, as they say least."""
    told = [text.removeprefix("model: ") for text in difference(one, other) if text.startswith("model:")]
    told = [_without_folders(text) for text in told]
    return tuple(sorted(told, key=lambda text: text.startswith(("digest", "tokenizer"))))


def called(provenance: Provenance) -> str:
    """The model's own name, with its adapter's where there is one."""
    name = model_name({"model": provenance.model}).rsplit("/", 1)[-1] or "the model"
    adapter = provenance.model.get("adapter")
    return f"{name} + {PurePath(str(adapter)).name}" if adapter else name


def _without_folders(text: str) -> str:
    """How somebody's folders are called is none of a reader's business.

    >>> _without_folders("adapter None against /home/me/sparse")
    'adapter none against sparse'
    """
    words = ["none" if word == "None" else word for word in text.split(" ")]
    return " ".join(PurePath(word).name if word.startswith(("/", "~", ".")) else word for word in words)


def names_of(a: Atlas, b: Atlas, one: str, other: str) -> tuple[str, str]:
    """What to call two atlases: their models, with the folders where the models are called alike."""
    if one != other:
        return one, other
    folders = PurePath(a.place.address), PurePath(b.place.address)
    depth = 1
    while folders[0] != folders[1] and folders[0].parts[-depth:] == folders[1].parts[-depth:]:
        depth += 1
    parts = ["/".join(path.parts[-depth:]) for path in folders]
    return f"{one} ({parts[0]})", f"{other} ({parts[1]})"


def _data(provenance: Provenance) -> str:
    data = provenance.data
    return f"{data.get('name', 'unnamed')}, {data.get('size', 'unknown')} examples, {str(data.get('digest', ''))[:8]}"
