"""What `build` leaves beside an atlas for papers and slides: every figure as PNG, SVG and PDF."""

from __future__ import annotations

from pathlib import Path

from headwise.atlas import Atlas
from headwise.atlas.disk import translate_os_errors
from headwise.figures import save
from headwise.studies.present import has_figure

__all__ = ["write_pictures"]

FORMATS = ("png", "svg", "pdf")


def write_pictures(atlas: Atlas, folder: Path) -> list[Path]:
    """Write the files into a folder, which is made, and return their paths."""
    files = []
    with translate_os_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        for study in filter(has_figure, atlas.studies):
            figure = atlas.figure(study)
            for suffix in FORMATS:
                path = folder / f"{study}.{suffix}"
                save(figure, path)
                files.append(path)
    return files
