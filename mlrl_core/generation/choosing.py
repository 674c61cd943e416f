"""Greedy choice among token sequences: only tokens that some choice goes on with count."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mlrl_core.instrumentation.frozen import Question


def choose_answers(
    prompt: Sequence[int],
    questions: Sequence[Question],
    encode: Callable[[str], list[int]],
    pick: Callable[[list[int], Sequence[int]], int],
) -> list[int]:
    """See ``FrozenModel.choose``. ``prompt``: the ids of the instruction; ``pick`` gets all ids before the next token,
    and the tokens that it may be (ascending, two or more), and returns one of those."""
    answer = ""
    chosen: list[int] = []
    for start, choices in questions:
        before = [*prompt, *encode(answer + start)]
        options = [encode(choice) for choice in choices]
        chosen.append(choose_by_tokens(options, lambda begun, allowed, ids=before: pick([*ids, *begun], allowed)))  # type: ignore[misc]
        answer += start + choices[chosen[-1]]
    return chosen


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
