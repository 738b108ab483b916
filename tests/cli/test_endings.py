"""An order to end is followed, also where Python forgets the exception that carries it."""

import signal
import subprocess
import sys

import pytest

from headwise.cli.endings import ends_when_told

CODE = """
import os, signal, time
from headwise.cli.endings import ends_when_told

class Finalised:
    def __del__(self):
        os.kill(os.getpid(), signal.{name})
        time.sleep(0.001)

try:
    with ends_when_told():
        one = Finalised()
        del one
        time.sleep(20)
except BaseException as error:
    print(type(error).__name__, *error.args)
"""


@pytest.mark.parametrize(("name", "told"), [("SIGTERM", "SystemExit 143"), ("SIGINT", "KeyboardInterrupt")])
def test_an_order_within_a_finaliser_is_not_lost(name, told):
    code = CODE.replace("{name}", name)
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert run.stdout.strip() == told, run.stderr


def test_what_was_there_is_put_back():
    before = signal.getsignal(signal.SIGTERM)
    with ends_when_told():
        assert signal.getsignal(signal.SIGTERM) is not before
    assert signal.getsignal(signal.SIGTERM) is before
