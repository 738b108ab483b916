"""The pictures of docs/gallery.md: each published figure in both styles, from one atlas.

headwise build -o atlas && headwise build --studies circuits -o atlas
python scripts/gallery.py atlas          # writes docs/images/gallery-STUDY-STYLE.png
"""

from __future__ import annotations

import sys
from pathlib import Path

from headwise.atlas import Atlas
from headwise.figures import save
from headwise.studies.registry import datasets

IMAGES = Path(__file__).parents[1] / "docs" / "images"
STYLES = ("full", "paper")
DPI = 100  # of a page 7.2 inches wide


def main(atlas: str) -> None:
    """Draw every study that has a published layout, in both styles."""
    opened = Atlas.open(Path(atlas))
    for name, spec in datasets().items():
        if "style" in spec.figure_options and name in opened.studies:
            for style in STYLES:
                path = save(opened.figure(name, style=style), IMAGES / f"gallery-{name}-{style}.png", dpi=DPI)
                print(path, f"{path.stat().st_size // 1024} KiB")


if __name__ == "__main__":
    main(sys.argv[1])
