"""SIGTERM and Ctrl-C end a command, even if Python drops the exception inside a finaliser."""

import builtins
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from headwise import cli
from headwise.cli.main import unwind_on_sigterm

CODE = """
import os, signal, time
from headwise.cli.main import unwind_on_sigterm

class Finalised:
    def __del__(self):
        os.kill(os.getpid(), signal.{name})
        time.sleep(0.001)

try:
    with unwind_on_sigterm():
        one = Finalised()
        del one
        time.sleep(20)
except BaseException as error:
    print(type(error).__name__, *error.args)
"""


@pytest.mark.parametrize(("name", "expected"), [("SIGTERM", "SystemExit 143"), ("SIGINT", "KeyboardInterrupt")])
def test_a_signal_inside_a_finaliser_is_not_lost(name, expected):
    code = CODE.replace("{name}", name)
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert run.stdout.strip() == expected, run.stderr


def test_the_previous_handler_is_restored():
    before = signal.getsignal(signal.SIGTERM)
    with unwind_on_sigterm():
        assert signal.getsignal(signal.SIGTERM) is not before
    assert signal.getsignal(signal.SIGTERM) is before


def test_ctrl_c_while_the_command_line_is_loaded_is_one_sentence(monkeypatch, capsys):
    ordinary = builtins.__import__

    def interrupted(name, *rest):
        if name == "headwise.cli.main":
            raise KeyboardInterrupt
        return ordinary(name, *rest)

    monkeypatch.setattr(builtins, "__import__", interrupted)
    with pytest.raises(SystemExit) as ended:
        cli.run()
    assert ended.value.code == 130
    assert capsys.readouterr().err == "headwise: interrupted before anything was done; run the same command again.\n"


def test_the_installed_command_is_the_guarded_one():
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    assert project["project"]["scripts"]["headwise"] == "headwise.cli:run"
