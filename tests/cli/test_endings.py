"""An order to end is followed, also where Python forgets the exception that carries it."""

import os
import signal
import time

import pytest

from headwise.cli.endings import TERMINATED, ends_when_told


class Finalised:
    """An order comes while this is finalised."""

    def __init__(self, number: signal.Signals):
        self.number = number

    def __del__(self):
        os.kill(os.getpid(), self.number)
        time.sleep(0.001)


@pytest.mark.parametrize(("number", "error"), [(signal.SIGTERM, SystemExit), (signal.SIGINT, KeyboardInterrupt)])
def test_an_order_within_a_finaliser_is_not_lost(number, error):
    with pytest.raises(error) as caught, ends_when_told():
        _go_on_after(Finalised(number))
    if error is SystemExit:
        assert caught.value.code == TERMINATED


def test_what_was_there_is_put_back():
    before = signal.getsignal(signal.SIGTERM)
    with ends_when_told():
        assert signal.getsignal(signal.SIGTERM) is not before
    assert signal.getsignal(signal.SIGTERM) is before


def _go_on_after(finalised):
    del finalised
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        time.sleep(0.01)
