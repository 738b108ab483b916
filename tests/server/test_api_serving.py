"""`headwise serve --api` as a process: it starts with a key, answers, tells what it cannot do, and ends at Ctrl-C."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from explorer import until
from planted import save_tiny
from synthetic.atlas import synthetic_atlas
from typer.testing import CliRunner

from headwise.cli.main import app
from headwise.core.errors import HeadwiseError
from headwise.server.api_key import read_api_key

CODE = "import sys; sys.argv[0] = 'headwise'; from headwise.cli.main import main; main()"
KEY = "0123456789abcdef0123"


@pytest.fixture(scope="module")
def small(tmp_path_factory: Any) -> str:
    return synthetic_atlas(tmp_path_factory.mktemp("api") / "small").location.address


@pytest.fixture(scope="module")
def folder(tmp_path_factory: Any) -> Path:
    return save_tiny(tmp_path_factory.mktemp("model") / "tiny", layers=2)


def test_it_serves_a_model_and_ends_at_ctrl_c(small: str, folder: Path, tmp_path: Path) -> None:
    key = tmp_path / "key.txt"
    key.write_text(f"{KEY}\n")
    options = ["--api", "--score", "RAUQ", "--model", str(folder), "--live", "--port", "0", "--api-key-file", str(key)]
    command = [sys.executable, "-c", CODE, "serve", small, *options, "--max-tokens", "20"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        line = server.stdout.readline()
        where = line.split()[0]
        assert f"{where}v1" in line
        until(lambda: httpx.get(f"{where}health").json()["status"] != "loading", 60)
        with openai.OpenAI(base_url=f"{where}v1", api_key=KEY, max_retries=0) as client:
            [listed] = client.models.list()
            assert listed.id == "tiny" and listed.headwise["note"].startswith("RAUQ")
            assert (listed.headwise["score"], listed.headwise["threshold"]) == ("RAUQ", None)
            assert str(folder.parent) not in str(listed)
            asked = {"model": "tiny", "prompt": "the old river", "temperature": 0}
            choice = client.completions.create(**asked, max_tokens=5).choices[0]
            assert choice.headwise["score"] > 0 and choice.headwise["probability"] is None
            with pytest.raises(openai.BadRequestError, match="at most 20"):
                client.completions.create(model="tiny", prompt="the old river", max_tokens=21)
        assert httpx.post(f"{where}v1/completions", json={"model": "tiny", "prompt": "the"}).status_code == 401
        until(lambda: httpx.get(f"{where}api/small/live").json()["state"] == "ready")  # the same model
        server.send_signal(signal.SIGINT)
        begun = time.monotonic()
        out, err = server.communicate(timeout=20)
        assert server.returncode == 0, err
        assert time.monotonic() - begun < 10 and "Traceback" not in out + err and KEY not in out + err
    finally:
        server.kill()
        server.communicate()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--at", "0.1"], "add --api"),
        (["--max-queue", "3"], "add --api"),
        (["--stop-at-alarm"], "add --api"),
        (["--api", "--host", "0.0.0.0", "--allow-host", "box.example"], "openssl rand -hex 32"),
        (["--api", "--api-key-file", "nowhere.txt"], "cannot be read from nowhere.txt"),
        (["--api"], "headwise build --studies streaming"),
        (["--api", "--score", "RAUK"], "Did you mean 'RAUQ'"),
        (["--api", "--score", "RAUQ", "--at", "0.1"], "omit --at"),
    ],
)
def test_what_cannot_be_served_is_refused_before_a_model_is_loaded(
    small: str, options: list[str], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HEADWISE_API_KEY", raising=False)
    result = CliRunner().invoke(app, ["serve", small, "--port", "0", *options])
    assert isinstance(result.exception, HeadwiseError) and words in str(result.exception)


@pytest.mark.parametrize("key", ["", "short", "with a space in between", "ümlaut-0123456789abcdef", "x" * 5000])
def test_a_weak_or_odd_key_is_refused(key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "key.txt"
    file.write_text(key)
    with pytest.raises(HeadwiseError, match="16 or more characters"):
        read_api_key(file)
    monkeypatch.setenv("HEADWISE_API_KEY", key)
    with pytest.raises(HeadwiseError, match="16 or more characters"):
        read_api_key(None)


def test_the_key_comes_from_the_file_then_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HEADWISE_API_KEY", raising=False)
    assert read_api_key(None) is None
    monkeypatch.setenv("HEADWISE_API_KEY", KEY)
    from_environment = read_api_key(None)
    assert from_environment is not None
    from_environment.check(f"Bearer {KEY}")
    file = tmp_path / "key.txt"
    file.write_text(f"{KEY[::-1]}\n")
    from_file = read_api_key(file)
    assert from_file is not None
    from_file.check(f"bearer {KEY[::-1]}")
    with pytest.raises(HeadwiseError, match="wrong"):
        from_file.check(f"Bearer {KEY}")
