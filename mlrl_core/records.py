"""The records that flow through a run. Plain frozen dataclasses: every package may import this module.

``Prompt -> Solution -> InstrumentedProgram -> Execution -> Score -> Experience -> Batch -> PolicyVersion``

A record never holds what is known only later: advantages and weights live in the ``Batch``, not in the
``Experience``. Text is for people and for execution; the token ids of the sampler are what is trained on
and are never rebuilt from text.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

PromptKind = Literal["solve", "improve"]
FinishReason = Literal["stop", "length"]

# The closed set of outcomes of a solution. `infra_error` and `cancelled` never enter a batch, a baseline or a
# statistic of the policy.
Outcome = Literal[
    "graded",
    "invalid_submission",
    "no_submission",
    "error",
    "oom",
    "timeout",
    "output_limit",
    "no_code",
    "cancelled",
    "infra_error",
]
OUTCOMES: tuple[Outcome, ...] = Outcome.__args__  # type: ignore[attr-defined]
EXCLUDED_OUTCOMES: frozenset[Outcome] = frozenset({"cancelled", "infra_error"})

ExecutionStatus = Literal["ok", "error", "oom", "timeout", "output_limit", "cancelled", "infra_error"]
SubmissionState = Literal["ok", "missing", "refused", "not_collected"]


@dataclass(frozen=True, slots=True)
class Solution:
    """One response of the policy: a plan and a program, with the sampler's own numbers.

    ``response_ids`` includes the end-of-sequence token when ``finish_reason`` is ``stop``; ``log_probs`` has one
    behaviour log-probability per response token, at the sampling temperature. ``code`` is None when the response
    holds nothing that could be a program. ``parent_id`` and ``parent_reward`` are of the earlier solution that an
    improve prompt showed.
    """

    solution_id: str
    competition_id: str
    wave: int
    slot: int
    prompt_kind: PromptKind
    parent_id: str | None
    policy_version: int  # at dispatch
    seed: int
    prompt_ids: tuple[int, ...]
    response_ids: tuple[int, ...]
    log_probs: tuple[float, ...]
    finish_reason: FinishReason
    text: str
    plan: str
    code: str | None
    generated_at: float  # epoch seconds
    generation_s: float
    parent_reward: float | None = None


@dataclass(frozen=True, slots=True)
class InstrumentedProgram:
    """The program as it is run. ``source`` is the original where ``inserter`` is ``none``.

    ``milestones`` are the labels whose prints were inserted. ``line_map[i]`` is the original line (1-based) of
    line ``i + 1`` of ``source``, or 0 for an inserted line.
    """

    source: str
    inserter: str  # ast | lm_lines | lm_rewrite | none
    nonce: str
    milestones: tuple[str, ...]
    line_map: tuple[int, ...]
    fallback_reason: str | None = None


@dataclass(frozen=True, slots=True)
class StreamCapture:
    """What is kept of one output stream: a head, a tail and the number of bytes printed in all."""

    head: str
    tail: str
    bytes: int


@dataclass(frozen=True, slots=True)
class Execution:
    """Result contract of the sandbox. No field is derived from text or numbers that the program controls,
    except the captured output itself.

    ``duration_s`` is the program's own run time (container start-up, queueing and retries excluded) and exactly
    the limit for ``timeout``. ``submission_path`` points at the collected file when ``submission_state`` is ``ok``.
    A counter that the host can't read is None, never 0.
    """

    status: ExecutionStatus
    exit_code: int | None
    signal: int | None
    duration_s: float
    wall_s: float
    queue_s: float
    cpu_s: float | None
    peak_memory_mb: float | None
    stdout: StreamCapture
    stderr: StreamCapture
    milestones: tuple[str, ...]  # labels seen, each once, in the order seen
    milestone_values: dict[str, float]  # of valued milestones, e.g. training loss
    submission_state: SubmissionState
    submission_reason: str | None
    submission_path: str | None
    submission_bytes: int
    started_at: float  # epoch seconds
    finished_at: float
    backend: str
    oom_seen: bool = False
    output_truncated: bool = False
    output_lost: bool = False
    idle_suspect: bool = False
    clock_suspect: bool = False
    milestones_out_of_order: bool = False
    detail: str | None = None  # for infra_error: what failed


@dataclass(frozen=True, slots=True)
class Score:
    """What the grader says of a submission. ``raw`` is None when it is invalid; ``reason`` then says why, from a
    fixed vocabulary that reveals nothing of the answers. ``report_raw`` is the score on the half of the answers that
    rewards never see, where the run splits them; ``raw`` is then of the other half."""

    raw: float | None
    valid: bool
    is_lower_better: bool
    reason: str | None = None
    percentile: float | None = None
    medal: Literal["gold", "silver", "bronze"] | None = None
    warnings: tuple[str, ...] = ()
    versions: dict[str, str] = field(default_factory=dict)
    report_raw: float | None = None


@dataclass(frozen=True, slots=True)
class Reward:
    """The reward of a solution and its parts (method.md section 4). ``total`` is what PPO sees.

    ``charged_s`` is the duration that duration weights go by: the run time, unless ``reward.failure_charge`` says
    otherwise (0 where nothing was run; None in rows that are older than the switch: there it is the run time).
    """

    total: float
    outcome: Outcome
    mapped_score: float | None  # the score after `reward_map`; None for a failure
    milestone_credit: float  # partial credit, of whatever kind, as far as it is part of `total`
    charged_s: float | None = None


@dataclass(frozen=True, slots=True)
class Experience:
    """One immutable row of the store: all that is known of a solution when it has ended."""

    solution: Solution
    program: InstrumentedProgram | None  # None for `no_code`
    execution: Execution | None
    score: Score | None
    reward: Reward | None  # None for `infra_error` and `cancelled`
    outcome: Outcome
    generated_at: float
    queued_at: float
    started_at: float
    finished_at: float
    detail: str | None = None  # for infra_error: what failed
    flags: tuple[str, ...] = ()  # suspected hacks, by the names of `hacks.*`
