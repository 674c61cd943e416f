"""Rows as one flat sequence: no padding, and a prompt that several responses share is there once.

A pack holds groups. A group is a prompt followed by the responses to it; every response attends to its prompt and to
itself, at the positions it would have alone. The last token of a response predicts nothing and is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from mlrl_core.learner.batch_file import BatchRow


@dataclass(frozen=True)
class PackLayout:
    """Lengths of the segments, in order: for each group its prompt, then its responses (last tokens left out)."""

    groups: tuple[tuple[int, tuple[int, ...]], ...]

    @property
    def segments(self) -> list[int]:
        return [length for prompt, responses in self.groups for length in (prompt, *responses)]

    def causal_mask(self, dtype: torch.dtype, device: torch.device) -> Tensor:
        """Additive mask [R, R] of the longest response; a part of it serves every other one."""
        longest = max((length for _, responses in self.groups for length in responses), default=0)
        return torch.full((longest, longest), float("-inf"), dtype=dtype, device=device).triu(1)


@dataclass(frozen=True)
class Pack:
    """One micro-batch. T tokens are fed, M response tokens are predicted."""

    layout: PackLayout
    input_ids: Tensor  # [1, T]
    position_ids: Tensor  # [1, T]
    predictors: Tensor  # [M] index into T of the token that predicts each response token
    targets: Tensor  # [M] ids of the response tokens
    slots: Tensor  # [M] index of each response token in the flattened N x R arrays of the batch, on the CPU
    blank: bool = False  # a filler: to be computed, for the sake of the other ranks, and to count for nothing

    @property
    def tokens(self) -> int:
        return self.input_ids.shape[1]

    def to(self, device: torch.device) -> Pack:
        """The same pack with what the network reads on ``device``."""
        return replace(
            self,
            input_ids=self.input_ids.to(device),
            position_ids=self.position_ids.to(device),
            predictors=self.predictors.to(device),
            targets=self.targets.to(device),
        )


def pack_rows(rows: Sequence[BatchRow], indices: Sequence[int], width: int, token_budget: int) -> list[Pack]:
    """Packs of the rows at ``indices`` with at most ``token_budget`` tokens each (a longer row gets its own).

    ``width`` is R, the second size of the batch's arrays. Rows without a response token are in no pack. Rows with the
    same prompt share it within a pack; the order is that of first appearance, so equal input gives equal packs.
    """
    groups: dict[tuple[int, ...], list[int]] = {}
    for index in indices:
        if rows[index].response_ids:
            groups.setdefault(rows[index].prompt_ids, []).append(index)
    packs: list[Pack] = []
    current: list[tuple[tuple[int, ...], list[int]]] = []
    used = 0
    for prompt, members in groups.items():
        open_group = False
        for index in members:
            length = len(rows[index].response_ids) - 1
            cost = length + (0 if open_group else len(prompt))
            if used and used + cost > token_budget:
                packs.append(_build(rows, current, width))
                current, used, open_group = [], 0, False
                cost = length + len(prompt)
            if not open_group:
                current.append((prompt, []))
                open_group = True
            current[-1][1].append(index)
            used += cost
    if current:
        packs.append(_build(rows, current, width))
    return packs


def share_of(rows: Sequence[BatchRow], indices: Sequence[int], rank: int, world: int) -> list[int]:
    """The rows of ``indices`` that ``rank`` computes: neighbours by prompt, about equal in response tokens."""
    first: dict[tuple[int, ...], int] = {}
    for index in indices:
        first.setdefault(rows[index].prompt_ids, index)
    order = sorted(indices, key=lambda index: (first[rows[index].prompt_ids], index))
    total = sum(len(rows[index].response_ids) for index in order)
    share, before = [], 0
    for index in order:
        length = len(rows[index].response_ids)
        middle = (before + length / 2) / max(total, 1)
        if rank == min(int(middle * world), world - 1):
            share.append(index)
        before += length
    return share


def blank_pack() -> Pack:
    """A filler of one token: every rank must make the same number of passes, or the others wait for ever."""
    one = torch.zeros(1, dtype=torch.long)
    return Pack(PackLayout(((1, (0,)),)), one[None], one[None], one, one, one[:0], blank=True)


def _build(rows: Sequence[BatchRow], groups: list[tuple[tuple[int, ...], list[int]]], width: int) -> Pack:
    ids: list[int] = []
    positions: list[int] = []
    predictors: list[int] = []
    targets: list[int] = []
    slots: list[int] = []
    layout = []
    for prompt, members in groups:
        ids += prompt
        positions += range(len(prompt))
        last_of_prompt = len(ids) - 1
        lengths = []
        for index in members:
            response = rows[index].response_ids
            predictors += [last_of_prompt, *range(len(ids), len(ids) + len(response) - 1)]
            ids += response[:-1]
            positions += range(len(prompt), len(prompt) + len(response) - 1)
            targets += response
            slots += range(index * width, index * width + len(response))
            lengths.append(len(response) - 1)
        layout.append((len(prompt), tuple(lengths)))
    return Pack(
        layout=PackLayout(tuple(layout)),
        input_ids=torch.tensor([ids]),
        position_ids=torch.tensor([positions]),
        predictors=torch.tensor(predictors),
        targets=torch.tensor(targets),
        slots=torch.tensor(slots),
    )
