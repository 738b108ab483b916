"""The search index as a script, so that the site can be searched from a disk, where no file can be fetched: a hook of the site.

The theme looks for `search/search_index.js` when it is read from a disk; `docs/javascripts/disk-search.js` does the rest.
"""

from __future__ import annotations

from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.plugins import event_priority


@event_priority(-100)  # after the search plugin
def on_post_build(config: MkDocsConfig) -> None:
    """Write the index once more."""
    folder = Path(config.site_dir) / "search"
    index = (folder / "search_index.json").read_text(encoding="utf-8")
    (folder / "search_index.js").write_text(f"var __index = {index}", encoding="utf-8")
