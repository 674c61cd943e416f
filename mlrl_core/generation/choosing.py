"""Greedy choice among token sequences: only tokens that some choice goes on with count."""

from __future__ import annotations

from collections.abc import Callable, Sequence


def choose_by_tokens(options: Sequence[Sequence[int]], pick: Callable[[Sequence[int], Sequence[int]], int]) -> int:
    """The index of the option that a model prefers, token by token.

    ``pick`` gets what all options still open begin with, and the tokens (ascending, two or more) that they go on with,
    and returns one of those. An option that begins others, or is the same as another, is taken when it has ended.
    """
    left = list(range(len(options)))
    depth = 0
    while len(left) > 1:
        ended = [each for each in left if len(options[each]) == depth]
        if ended:
            return ended[0]
        allowed = sorted({options[each][depth] for each in left})
        token = pick(options[left[0]][:depth], allowed) if len(allowed) > 1 else allowed[0]
        left = [each for each in left if options[each][depth] == token]
        depth += 1
    return left[0]
