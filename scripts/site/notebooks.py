"""Notebooks as pages: a hook of the site.

`docs/notebooks/NAME.ipynb`, with the outputs of its last run, becomes the page `notebooks/NAME.html`. Steps: every notebook is
turned into Markdown (nbconvert's own exporter) in memory; its pictures are written into the text as data URLs; a link to the
notebook on another page, which shows it where the files are read on a code host, leads to its page here; a line at its head
offers the file.

Cost: some milliseconds a notebook. This hook runs nothing: whether what a notebook says is true is for tests/notebooks.
"""

from __future__ import annotations

import base64
import re
from pathlib import Path

import nbconvert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

FOLDER = "notebooks/"
_STYLE = re.compile(r"<style.*?</style>", re.DOTALL)
_LINK = re.compile(r"(\]\([^)\s]*)\.ipynb(#[^)\s]*)?\)(?!\{ \.headwise-download)")
_PICTURE = re.compile(r"!\[([^\]]*)\]\(([\w.-]+)\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Put a page next to every notebook."""
    for file in list(files):
        path = file.src_uri
        if path.startswith(FOLDER) and path.endswith(".ipynb"):
            page = path.removesuffix(".ipynb") + ".md"
            if files.get_file_from_path(page) is None:
                files.append(File.generated(config, page, content=page_of(Path(str(file.abs_src_path)))))
    return files


def on_page_markdown(markdown: str, **_: object) -> str:
    """Links to notebooks lead to their pages."""
    return _LINK.sub(r"\1.md\2)", markdown)


def page_of(notebook: Path) -> str:
    """The notebook as Markdown, with its pictures inside and a line that offers the file."""
    text, resources = nbconvert.MarkdownExporter().from_filename(str(notebook))
    text = _STYLE.sub("", text)
    pictures = resources.get("outputs", {})

    def embedded(found: re.Match[str]) -> str:
        content = pictures.get(found[2])
        if content is None:
            return found[0]
        kind = "svg+xml" if found[2].endswith(".svg") else found[2].rpartition(".")[2]
        return f"![{found[1]}](data:image/{kind};base64,{base64.b64encode(content).decode()})"

    title, _, rest = _PICTURE.sub(embedded, text).lstrip().partition("\n")
    return f"{title}\n\n[Download this notebook]({notebook.name}){{ .headwise-download download }}\n{rest}"
