"""What the policy reads. Our own words; the structure follows method.md section 6."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

from mlrl_core.agent.budget import Count, Part, compose, cut_end, cut_line, cut_middle, fixed
from mlrl_core.agent.earlier import Earlier
from mlrl_core.config.environment import SandboxConfig
from mlrl_core.config.policy import PromptConfig
from mlrl_core.errors import MlrlError

# What is cut first has the lowest rank (`budget.Part`).
_DESCRIPTION, _PREVIEW, _PACKAGES, _SAMPLE, _OUTPUT, _PROGRAM, _ERROR = range(7)
_HEADER_CHARS = 200
_SAMPLE_LINES = 4
_AGAIN = (
    "\nThere is an earlier program for this task, and yours shall score better. Change what matters and write the "
    "whole program again, also the parts that stay as they are.\n"
)
_ANEW = "\nThere is an earlier answer to this task, and yours shall score better. Write a whole program.\n"
_CHARS_PER_TOKEN = 16  # more than any tokenizer has on a prompt's length of prose: spares counting what can't fit


class PromptSource(Protocol):
    """The public side of a competition, as far as a prompt needs it."""

    @property
    def id(self) -> str: ...
    @property
    def description(self) -> str: ...
    @property
    def metric(self) -> str: ...
    @property
    def is_lower_better(self) -> bool: ...


def task_text(competition: PromptSource, sample_header: str, limits: SandboxConfig) -> str:
    """The part of a short prompt that is never cut: the task, the rules and the form of the answer.

    ``sample_header`` is the first line of the sample submission.
    """
    direction = "lower" if competition.is_lower_better else "higher"
    return (
        f"Write a Python program for the competition {competition.id}. Its predictions are scored by "
        f"{competition.metric}, {direction} is better.\n"
        f"Train a model on ./input/train.csv, predict ./input/test.csv and write ./submission.csv with the columns "
        f"{sample_header}. No network, {limits.time_limit_s:g} seconds, {limits.memory_mb} MB.\n"
        "First a plan of one to five sentences, then exactly one fenced Python block.\n"
    )


def solve_prompt(
    competition: PromptSource, sample_header: str, limits: SandboxConfig, max_tokens: int, count_tokens: Count
) -> str:
    """The user's turn of a short solve prompt, at most ``max_tokens`` long: the task, then the description, cut to
    fit. A small policy that was warm-started on one task needs no more.

    Raises MlrlError when the task alone is too long.
    """
    task = task_text(competition, sample_header, limits)
    room = max_tokens - count_tokens(task)
    if room < 0:
        raise MlrlError(
            f"prompt.max_tokens = {max_tokens} is too small: the task alone needs {count_tokens(task)} tokens"
        )
    return task + cut_end(f"\n{competition.description.strip()}\n", room, count_tokens)


@dataclass(frozen=True)
class PromptWriter:
    """Writes the prompts of one competition.

    ``sample`` is the head of the sample submission and ``sample_path`` where a program finds it, ``preview`` a
    description of the data files in at most so many tokens, ``packages`` what a program can import (``python`` and
    names -> versions).
    """

    competition: PromptSource
    sample: str
    sample_path: str
    limits: SandboxConfig
    config: PromptConfig
    short: bool  # see PromptConfig.contents
    count_tokens: Count
    preview: Callable[[int], str] = lambda max_tokens: ""
    packages: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def solve(self) -> str:
        """The user's turn of a solve prompt. Raises MlrlError when ``prompt.max_tokens`` is too small."""
        if self.short:
            return solve_prompt(self.competition, self._header, self.limits, self.config.max_tokens, self.count_tokens)
        parts = [fixed("task", self._task), *self._about_the_data]
        return compose(parts, self.config.max_tokens, self.count_tokens)

    def improve(self, earlier: Earlier) -> str:
        """The user's turn of a prompt to improve an earlier program: the program, what it printed and what came of it.

        Cut first: the description, the data preview, the packages, the sample, the output, then the program, at last
        its error.
        Raises MlrlError when ``prompt.max_tokens`` is too small.
        """
        return compose(
            [
                fixed("task", task_text(self.competition, self._header, self.limits) if self.short else self._task),
                *([] if self.short else self._about_the_data),
                fixed(
                    "outcome of the earlier program",
                    f"{_AGAIN if earlier.code else _ANEW}{earlier.outcome}\n",
                ),
                Part("error", lambda room: self._error(earlier, room), _ERROR),
                Part("program", lambda room: self._program(earlier, room), _PROGRAM),
                Part("output", lambda room: self._output(earlier, room), _OUTPUT),
            ],
            self.config.max_tokens,
            self.count_tokens,
        )

    @cached_property
    def _header(self) -> str:
        return self.sample.split("\n", 1)[0].strip()

    @cached_property
    def _task(self) -> str:
        direction = "lower" if self.competition.is_lower_better else "higher"
        limits = self.limits
        models = " Pretrained models lie in /models." if limits.models_dir else " There are no pretrained models."
        gpu = " and a GPU" if limits.gpus else ""
        cpus = f"{limits.cpus:g} CPU core{'' if limits.cpus == 1 else 's'}"
        header = self._header if len(self._header) <= _HEADER_CHARS else f"{self._header[:_HEADER_CHARS]}..."
        return (
            "Train a model on the training data of a competition, predict its test data and write the submission.\n"
            f"The competition is {self.competition.id}. It is scored by {self.competition.metric}, {direction} is "
            "better.\n"
            f"- The data lie in ./input/. Write ./submission.csv in the form of {self.sample_path}, whose first line "
            f"is {header}\n"
            f"- There is no network and nothing can be installed.{models}\n"
            f"- The program has {limits.time_limit_s:g} seconds on {cpus}{gpu} and {limits.memory_mb} MB of memory. "
            "Where the data are too large for that, train on a part of the rows.\n"
            "Answer with a plan of three to five sentences, then exactly one fenced Python block that holds the whole "
            "program.\n"
        )

    @cached_property
    def _about_the_data(self) -> list[Part]:
        return [
            Part("sample", self._sample_rows, _SAMPLE),
            Part("packages", self._package_list, _PACKAGES),
            Part("preview", self._data_preview, _PREVIEW),
            Part("description", self._description, _DESCRIPTION),
        ]

    def _sample_rows(self, room: int) -> str:
        lines = [line[:_HEADER_CHARS] for line in self.sample.split("\n")[:_SAMPLE_LINES]]
        return self._whole(f"\nThe sample submission begins:\n{_fence(chr(10).join(lines).strip())}", room)

    def _package_list(self, room: int) -> str:
        if not self.packages:
            return ""
        python = self.packages.get("python", "")
        names = sorted(name for name in self.packages if name != "python")
        lead = f"\nPython {python}".rstrip() + " with "
        versions = f"{lead}{', '.join(f'{name} {self.packages[name]}' for name in names)}.\n"
        return self._whole(versions, room) or self._whole(f"{lead}{', '.join(names)}.\n", room)

    @cached_property
    def _whole_preview(self) -> str:
        return self.preview(self.config.preview_tokens) if self.config.preview_tokens else ""

    def _data_preview(self, room: int) -> str:
        if not self._whole_preview.strip():
            return ""
        return cut_end(f"\nThe files in ./input/:\n{self._whole_preview.strip()}\n", room, self.count_tokens)

    def _description(self, room: int) -> str:
        text = self.competition.description.strip()[: _CHARS_PER_TOKEN * self.config.max_tokens]
        return cut_end(f"\nThe competition's description:\n{text}\n", room, self.count_tokens) if text else ""

    def _error(self, earlier: Earlier, room: int) -> str:
        return cut_line(f"The error: {earlier.error}\n", room, self.count_tokens) if earlier.error else ""

    def _program(self, earlier: Earlier, room: int) -> str:
        lead = "\nThe earlier program:\n"
        mark = "# [... {lines} lines cut ...]"
        return self._quoted(lead, earlier.code, room, mark, "python")

    def _output(self, earlier: Earlier, room: int) -> str:
        lead = "\nWhat it printed:\n"
        return self._quoted(lead, earlier.output, room, "[... {lines} lines cut ...]", "") if earlier.output else ""

    def _quoted(self, lead: str, text: str, room: int, mark: str, tag: str) -> str:
        """``text`` between fences behind ``lead``, head and tail of it where it is too long."""

        def whole(body: str) -> str:
            return lead + _fence(body.strip("\n"), tag)

        body = cut_middle(text.strip("\n"), room, lambda part: self.count_tokens(whole(part)), mark)
        return whole(body) if body.strip() else ""

    def _whole(self, text: str, room: int) -> str:
        """All of it or nothing."""
        return text if self.count_tokens(text) <= room else ""


def _fence(text: str, tag: str = "") -> str:
    """``text`` as a fenced block that it can't close."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{tag}\n{text}\n{fence}\n"
