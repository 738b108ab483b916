"""The report as a file: whole, closed to the world, and refused with a reason where it cannot be written."""

import base64
import errno
import html
import json
import re
import zlib

import pytest
from synthetic.atlas import HOSTILE, synthetic_atlas
from typer.testing import CliRunner

from headwise.atlas import Atlas
from headwise.cli.main import app
from headwise.core.errors import AtlasError, DataError
from headwise.web import report
from headwise.web.content import Content
from headwise.web.html_page import ASSETS, module_closure, safe_json, served_page

BLOCK = re.compile(r'<script type="application/json" data-path="([^"]*)"( data-packed="deflate")?>([^<]*)</script>')


@pytest.fixture(scope="module")
def atlas(tmp_path_factory):
    studies = ("profile", "patterns", "spectral", "salience")
    return synthetic_atlas(tmp_path_factory.mktemp("report") / "atlas", 5, 4, studies, hostile=True)


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """One small study."""
    return synthetic_atlas(tmp_path_factory.mktemp("plain") / "atlas", 3, 2, ["profile"])


@pytest.fixture(scope="module")
def text(atlas):
    path = report.write(atlas, atlas.path.parent / "report.html")
    return path.read_text(encoding="utf-8")


def blocks(text):
    """path -> data, as the front end opens them."""
    found = {}
    for path, packed, body in BLOCK.findall(text):
        plain = zlib.decompress(base64.b64decode(body)).decode() if packed else body
        found[html.unescape(path)] = json.loads(plain)
    return found


def test_it_holds_every_path(text, atlas):
    content, found = Content(atlas), blocks(text)
    for path in content.paths():
        held = found[f"layer/{path[6:].partition('H')[0]}"][path] if path.startswith("head/L") else found[path]
        assert held == json.loads(json.dumps(content.at(path))), path


def test_it_asks_nothing_of_the_network(text):
    without_data = BLOCK.sub("", text)
    assert not re.search(r'(?:src|href)\s*=\s*"(?:https?:)?//', without_data)
    assert "@import" not in text and "url(http" not in text
    policy = html.unescape(re.search(r'Content-Security-Policy" content="([^"]*)"', text)[1])
    assert "default-src 'none'" in policy and "connect-src 'none'" in policy
    assert "unsafe-inline" not in policy.split("style-src")[0] and "unsafe-eval" not in policy


def test_nothing_in_the_data_can_end_its_element(text):
    assert HOSTILE not in text and "<img src=x" not in text
    studies = blocks(text)["findings"]["studies"]
    assert all(HOSTILE in study["title"] for study in studies)


def test_numbers_that_json_lacks_are_refused():
    with pytest.raises(ValueError, match="JSON"):
        safe_json({"a": float("nan")})


def test_modules_are_found_by_their_imports():
    names = module_closure()
    assert {"app", "figure", "svg_export", "data_loader", "router", "heads_page", "head_page"} <= set(names)
    assert "live_page" not in names  # only a server has it
    for name in names:
        code = (ASSETS / f"{name}.js").read_text(encoding="utf-8")
        assert code.startswith("//"), f"{name}.js has no comment that teaches"
        assert not re.search(r"""from\s+["'][./]""", code), f"{name}.js imports by path"
        assert "innerHTML" not in code and "insertAdjacentHTML" not in code, f"{name}.js writes HTML"


def test_a_served_page_takes_its_modules_from_the_server():
    page = served_page({"mode": "served", "atlas": "<atlas>", "atlases": []}, "<title>")
    assert "<title>&lt;title&gt;</title>" in page
    assert '"headwise/app":"/assets/app.js"' in page
    assert '"atlas":"\\u003catlas>"' in page
    assert "data:text/javascript" not in page


def test_progress_is_told(plain, tmp_path):
    heard = []
    report.write(plain, tmp_path / "report.html", progress=lambda done, total: heard.append((done, total)))
    assert heard == sorted(heard)
    assert heard[-1][0] == heard[-1][1]


def test_a_report_that_fails_leaves_the_old_one(plain, tmp_path, monkeypatch):
    target = tmp_path / "report.html"
    target.write_text("the old one")

    def full(*_):
        raise OSError(errno.ENOSPC, "no space left")

    monkeypatch.setattr(report, "_encoded", full)
    with pytest.raises(AtlasError, match="the disk is full"):
        report.write(plain, target)
    assert target.read_text() == "the old one"
    assert [file.name for file in tmp_path.iterdir()] == ["report.html"]


def test_places_that_cannot_hold_it_are_refused(atlas, tmp_path):
    with pytest.raises(DataError, match="no folder"):
        report.write(atlas, tmp_path / "nowhere" / "report.html")
    with pytest.raises(DataError, match="is a folder"):
        report.write(atlas, tmp_path)
    with pytest.raises(AtlasError, match="no study yet"):
        report.write(Atlas.create(tmp_path / "empty"), tmp_path / "report.html")


def test_the_verb_writes_beside_the_atlas_unless_told(plain, tmp_path):
    runner = CliRunner()
    told = runner.invoke(app, ["report", str(plain.path), "-o", str(tmp_path / "mine.html"), "--json"])
    assert told.exit_code == 0, told.output
    assert json.loads(told.stdout)["bytes"] == (tmp_path / "mine.html").stat().st_size
    beside = runner.invoke(app, ["report", str(plain.path)])
    assert beside.exit_code == 0
    assert (plain.path.parent / "atlas-report.html").exists()
    nowhere = runner.invoke(app, ["report", str(tmp_path / "nothing")])
    assert isinstance(nowhere.exception, AtlasError)


@pytest.mark.parametrize("name", ["mine.pdf", "mine", "mine.html.zip"])
def test_a_report_is_html_by_its_name(plain, tmp_path, name):
    result = CliRunner().invoke(app, ["report", str(plain.path), "-o", str(tmp_path / name)])
    assert isinstance(result.exception, DataError) and "does not end in .html or .htm" in str(result.exception)
    assert not list(tmp_path.iterdir())
