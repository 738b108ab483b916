"""Addresses: every page can be pasted and reloaded, and what is not there is 404."""

import json
import shutil
import socket
from urllib.parse import urlsplit

import pytest
from explorer import client_of

from headwise.core.errors import AtlasError
from headwise.server import create_app
from headwise.server.registry import AtlasRegistry

PAGES = ("", "study/profile", "study/answers", "heads", "head/L0H0", "head/L2H3", "agreement", "print", "live")
DATA = ("atlas", "study/profile", "heads", "head/L1H2", "agreement")


@pytest.mark.parametrize("path", PAGES)
def test_every_page_is_the_shell_with_its_settings(pages, path):
    answer = pages.get(f"/small/{path}")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/html")
    assert "Loading …" in answer.text  # there before any script has run
    settings = json.loads(answer.text.split('id="settings">')[1].split("</script>")[0])
    assert settings["mode"] == "served" and settings["atlas"] == "small" and settings["live"] is False


@pytest.mark.parametrize("path", DATA)
def test_every_path_of_data_is_json(pages, path):
    answer = pages.get(f"/api/small/{path}")
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "application/json"
    assert answer.json()


@pytest.mark.parametrize(
    "path",
    [
        "/small/study/nothing", "/small/head/L3H0", "/small/head/L0H4", "/small/head/L0", "/small/nowhere",
        "/small/heads/more", "/small/compare/other", "/other/", "/other/heads", "/api/other/atlas",
        "/api/small/study/nothing", "/api/small/figure/profile/nothing", "/api/small/", "/api/small/head/L9H9",
        "/assets/nothing.js", "/assets/index.html", "/api/small/download/heads.exe", "/openapi.json", "/docs",
    ],
)  # fmt: skip
def test_what_is_not_there_is_404(pages, path):
    answer = pages.get(path)
    assert answer.status_code == 404, answer.text[:200]
    assert "Traceback" not in answer.text


TRICKS = (
    "/..%2f..%2fetc/passwd", "/small/..%2f..%2fsecret", "/assets/..%2f..%2fpage.py", "/assets/%2e%2e/page.py",
    "/assets/../page.py", "/small/%2e%2e/%2e%2e/etc/passwd", "/api/small/%2e%2e/%2e%2e/zarr.json",
    "/api/small/study%2fprofile", "/assets//etc/passwd", "//etc/passwd", "/small/study/..%5c..%5cx",
    "/assets/style.css%00.js", "/api/%2e%2e/atlas", "/small/study/./profile",
)  # fmt: skip


def test_tricks_with_paths_are_404(running, atlas):
    """As raw lines over a socket: clients would tidy such paths up before they send them."""
    where = urlsplit(running(create_app([atlas])))
    said = {path: raw(where, path) for path in TRICKS}
    assert {path: text.split(" ", 2)[1] for path, text in said.items()} == dict.fromkeys(TRICKS, "404")
    assert not any("root:" in text or "import " in text for text in said.values())


def raw(where, path):
    with socket.create_connection((where.hostname, where.port), timeout=10) as line:
        line.sendall(f"GET {path} HTTP/1.1\r\nHost: {where.netloc}\r\nConnection: close\r\n\r\n".encode())
        return b"".join(iter(lambda: line.recv(65536), b"")).decode()


def test_the_first_atlas_has_an_alias(pages):
    answer = pages.get("/atlas/head/L0H1?figure=x", follow_redirects=False)
    assert (answer.status_code, answer.headers["location"]) == (307, "/small/head/L0H1?figure=x")
    assert pages.get("/", follow_redirects=False).headers["location"] == "/small/"
    assert pages.get("/small", follow_redirects=False).headers["location"] == "/small/"
    assert pages.get("/api/atlas/atlas").json()["name"] == "small"


def test_the_same_state_is_not_sent_twice_and_a_changed_atlas_is(pages, atlas, tmp_path):
    copied = shutil.copytree(atlas, tmp_path / "copied")
    with client_of(create_app([copied])) as client:
        first = client.get("/api/copied/study/profile")
        tag = {"if-none-match": first.headers["etag"]}
        assert client.get("/api/copied/study/profile", headers=tag).status_code == 304
        shutil.copy(copied / "zarr.json", copied / "zarr.json.new")
        (copied / "zarr.json.new").replace(copied / "zarr.json")  # a new file, as a build leaves
        again = client.get("/api/copied/study/profile", headers=tag)
        assert again.status_code == 200 and again.headers["etag"] != first.headers["etag"]
    asset = pages.get("/assets/style.css")
    assert asset.headers["content-type"].startswith("text/css")
    assert pages.get("/assets/style.css", headers={"if-none-match": asset.headers["etag"]}).status_code == 304


def test_several_atlases_are_listed_and_compared(atlas, tmp_path):
    other = shutil.copytree(atlas, tmp_path / "small")
    third = shutil.copytree(atlas, tmp_path / "an <b> atlas")
    with client_of(create_app([atlas, other, third])) as client:
        listed = client.get("/")
        assert 'href="/small/"' in listed.text and 'href="/small-2/"' in listed.text and "<b>" not in listed.text
        assert f">{atlas.parent.name}/small<" in listed.text and f">{tmp_path.name}/small<" in listed.text
        assert str(tmp_path) not in listed.text and "measured 20" in listed.text and "profile" in listed.text
        assert client.get("/small/compare/small-2").status_code == 200
        found = client.get("/api/small/compare/small-2").json()
        assert found["figures"][0]["payload"]["format"] == "headwise.figure/1"
        assert found["short"] and found["words"]
        assert found["table"] is None  # the same atlas: no head changed


def test_the_table_of_heads_can_be_taken_away(pages):
    csv = pages.get("/api/small/download/heads.csv")
    assert csv.headers["content-disposition"] == 'attachment; filename="small-heads.csv"'
    assert len(csv.text.splitlines()) == 1 + 12
    assert len(pages.get("/api/small/download/heads.json").json()) == 12


def test_names_come_from_folders_and_are_safe(atlas, tmp_path):
    registry = AtlasRegistry(
        [atlas, shutil.copytree(atlas, tmp_path / "api"), shutil.copytree(atlas, tmp_path / "ä ö?#")]
    )
    assert list(registry.atlases)[:2] == ["small", "api-2"]
    assert all(set(name) & set("/?#% ") == set() for name in registry.atlases)
    with pytest.raises(AtlasError, match="There is no atlas"):
        AtlasRegistry([tmp_path / "missing"])


def test_folders_are_told_apart_by_their_last_parts(atlas, tmp_path):
    first, second = (shutil.copytree(atlas, tmp_path / name / "demo" / "atlas") for name in ("new", "old"))
    registry = AtlasRegistry([first, second])
    assert [registry.short_path(one) for one in registry.atlases.values()] == ["new/demo/atlas", "old/demo/atlas"]
    alone = AtlasRegistry([first])
    assert alone.short_path(alone.first) == "demo/atlas"


def test_who_reads_html_is_told_in_html(pages):
    browser = {"accept": "text/html,application/xhtml+xml;q=0.9,*/*;q=0.8"}
    for path in ("/nope/", "/nope/heads", "/nope<b>"):
        page = pages.get(path, headers=browser)
        assert page.status_code == 404 and page.headers["content-type"].startswith("text/html")
        assert "There is no atlas of this name here." in page.text and "<b>" not in page.text
        assert pages.get(path).json()["error"].startswith("there is no atlas")
    assert pages.get("/api/nope/atlas", headers=browser).json()["error"]
    assert pages.get("/api/small/study/nope").json()["error"].startswith("There is no page of a study 'nope'")


def test_a_body_that_is_no_json_is_told(pages):
    answer = pages.post("/api/small/live/run", content="no", headers={"content-type": "application/json"})
    assert (answer.status_code, answer.json()["error"][:20]) == (422, "the body is not JSON")
