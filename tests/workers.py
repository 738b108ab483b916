"""Which worker runs which tests (`pytest -n 2 --dist loadgroup`): a file is not divided, nor is a group.

A fixture of a module is then made once, not once per worker. Tests with the mark `xdist_group` share something expensive
(Ray, the default model), and those with a browser too; these and the slowest files come first, so that no worker waits at
the end for the other.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest

SLOWEST = (
    "default model",
    "ray",
    "tests/faults",
    "browser",
    "tests/kernels",
    "tests/stats",
    "tests/studies",
    "tests/cli",
)


def unit(item: pytest.Item) -> str:
    """What is not divided: the group of a test, or its file."""
    mark = item.get_closest_marker("xdist_group")
    return mark.args[0] if mark else item.nodeid.partition("::")[0]


@pytest.hookimpl(wrapper=True)  # so that it comes before xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Generator[None, None, None]:
    """Give tests with a browser a group, and put the slowest units first."""
    for item in items:
        if "chromium" in getattr(item, "fixturenames", ()) and item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group("browser"))
    ranks = {
        name: next((rank for rank, slow in enumerate(SLOWEST) if name.startswith(slow)), len(SLOWEST))
        for name in map(unit, items)
    }
    items.sort(key=lambda item: ranks[unit(item)])
    return (yield)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Hand out groups and files in the order above."""
    from xdist.scheduler import LoadGroupScheduling

    class Units(LoadGroupScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return super()._split_scope(nodeid).partition("::")[0]

    config.option.loadscopereorder = False
    return Units(config, log)
