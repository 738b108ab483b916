"""What `build` leaves beside an atlas: every figure as PNG, SVG and PDF, and all words in one Markdown file."""

from __future__ import annotations

from pathlib import Path

from headwise.atlas import Atlas
from headwise.atlas.disk import explained
from headwise.figures import has_figure, save
from headwise.figures.origin import model_name

FORMATS = ("png", "svg", "pdf")


def write_report(atlas: Atlas, folder: Path, name: str) -> list[Path]:
    """Write the files and return their paths, the report first."""
    figures = folder / f"{name}-figures"
    with explained(figures):
        figures.mkdir(parents=True, exist_ok=True)
        return _write(atlas, figures, folder / f"{name}-report.md")


def _write(atlas: Atlas, figures: Path, report: Path) -> list[Path]:
    lines = [f"# Atlas of {model_name({'model': atlas.provenance(atlas.studies[0]).model})}", ""]
    files = []
    for study in filter(has_figure, atlas.studies):
        figure, words = atlas.figure(study), atlas.describe(study)
        for suffix in FORMATS:
            path = figures / f"{study}.{suffix}"
            save(figure, path)
            files.append(path)
        lines += [f"## {study}", "", f"![{words.short()}]({figures.name}/{study}.png)", "", words.markdown(), ""]
    report.write_text("\n".join(lines), encoding="utf-8")
    return [report, *files]
