"""A test that fails, or runs out of time, leaves none of its processes to the tests after it; and Ctrl-C for tests."""

from __future__ import annotations

import signal
from collections.abc import Generator, Iterator

import pytest

from tests import leftovers

_FAILED = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    item.stash[_FAILED] = item.stash.get(_FAILED, False) or report.failed
    return report


@pytest.fixture(autouse=True)
def _ends_what_a_failure_leaves(request: pytest.FixtureRequest) -> Iterator[None]:
    before = leftovers.children()
    yield
    if request.node.stash.get(_FAILED, False):
        for child in leftovers.children() - before:
            leftovers.end(child)


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """SIGINT raises KeyboardInterrupt, also where a shell has started the tests in its background (it is ignored)."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
