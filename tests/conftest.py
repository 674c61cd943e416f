"""A test that fails, or runs out of time, leaves none of its processes to the tests after it."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from mlrl_core.sandbox.helper.linux import descendants_of

_FAILED = pytest.StashKey[bool]()


def _children() -> set[int]:
    """Those of this process itself: what a server of the session starts is the server's."""
    me = os.getpid()
    found = set()
    for pid in descendants_of(me):
        with contextlib.suppress(OSError):
            if int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[1]) == me:
                found.add(pid)
    return found


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    item.stash[_FAILED] = item.stash.get(_FAILED, False) or report.failed
    return report


@pytest.fixture(autouse=True)
def _ends_what_a_failure_leaves(request: pytest.FixtureRequest) -> Iterator[None]:
    before = _children()
    yield
    if request.node.stash.get(_FAILED, False):
        for child in _children() - before:
            for pid in [*descendants_of(child), child]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
