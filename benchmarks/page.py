"""The page of benchmarks: each script owns one section of docs/benchmarks.md, between its two marks, and rewrites only that."""

from __future__ import annotations

import platform
import re
from datetime import date
from pathlib import Path

import torch
import transformers

import headwise as hw

PAGE = Path(__file__).parents[1] / "docs" / "benchmarks.md"


def write_section(name: str, text: str, path: Path = PAGE) -> None:
    """Put `text` where the section `name` is; at the end of the page if it has none yet."""
    page = path.read_text(encoding="utf-8") if path.exists() else "# Benchmarks\n"
    section = f"<!-- {name} -->\n{text.strip()}\n<!-- end of {name} -->"
    found = re.compile(rf"<!-- {re.escape(name)} -->.*?<!-- end of {re.escape(name)} -->", re.DOTALL)
    page = found.sub(lambda _: section, page) if found.search(page) else f"{page.rstrip()}\n\n{section}\n"
    path.write_text(page, encoding="utf-8")


def made_by(command: str) -> str:
    """The command, the day, the machine and the versions."""
    where = platform.processor() or platform.machine()
    if torch.cuda.is_available():
        where = torch.cuda.get_device_name()
    return (
        f"Made by `{command}` on {date.today().isoformat()}: {where}, {torch.get_num_threads()} threads, Python "
        f"{platform.python_version()}, torch {torch.__version__}, transformers {transformers.__version__}, headwise "
        f"{hw.__version__}."
    )
