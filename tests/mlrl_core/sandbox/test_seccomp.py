"""The effective filter, evaluated, not its text; what it does to real programs is in the conformance suite."""

from __future__ import annotations

import errno

import pytest

from mlrl_core.sandbox.seccomp import filter_bytes
from tests.mlrl_core.sandbox.bpf import evaluate

ALLOW, KILL, ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
FILTER = filter_bytes()


def refused_with(number: int) -> int:
    return ERRNO | number


@pytest.mark.parametrize("number", [0, 1, 9, 39, 42, 57, 59, 60, 202, 231, 257, 318, 332, 439])
def test_ordinary_calls_pass(number: int) -> None:
    assert evaluate(FILTER, number) == ALLOW


@pytest.mark.parametrize(
    "number", [101, 105, 165, 166, 250, 272, 298, 304, 308, 310, 321, 323, 425, 426, 427, 428, 430, 438, 442, 447]
)
def test_dangerous_calls_are_refused(number: int) -> None:
    assert evaluate(FILTER, number) == refused_with(errno.EPERM)


def test_other_architectures_are_killed() -> None:
    assert evaluate(FILTER, 1, arch=0x40000003) == KILL


def test_x32_and_clone3_look_missing() -> None:
    assert evaluate(FILTER, 0x40000000 | 101) == refused_with(errno.ENOSYS)
    assert evaluate(FILTER, 0x40000000 | 1) == refused_with(errno.ENOSYS)
    assert evaluate(FILTER, 435) == refused_with(errno.ENOSYS)


@pytest.mark.parametrize("bit", [0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000])
def test_clone_makes_threads_and_children_but_no_namespace(bit: int) -> None:
    assert evaluate(FILTER, 56, (0x3D0F00,)) == ALLOW  # a thread
    assert evaluate(FILTER, 56, (0x1200011,)) == ALLOW  # fork
    assert evaluate(FILTER, 56, (0x11 | bit,)) == refused_with(errno.EPERM)


@pytest.mark.parametrize("family", range(50))
def test_only_four_socket_families(family: int) -> None:
    expected = ALLOW if family in (1, 2, 10, 16) else refused_with(errno.EAFNOSUPPORT)
    assert evaluate(FILTER, 41, (family, 1, 0)) == expected


def test_clone_flags_that_look_like_socket_do_not_confuse_it() -> None:
    assert evaluate(FILTER, 56, (41,)) == ALLOW
