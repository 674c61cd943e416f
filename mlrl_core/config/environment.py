"""What the policy acts on: competition, instrumentation, sandbox, reward."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from mlrl_core.config.base import Section

# What a detected hack does to the reward of a graded program; it is logged in any case.
HackAction = Literal["flag", "valid_floor", "penalty"]


class CompetitionConfig(Section):
    """``others``: further competitions whose prompts are drawn beside those of ``id``; every one gets the same share of
    each wave, and a slot keeps its competition.

    ``data_dir`` holds prepared competitions (``<id>/prepared/{public,private}``); empty = the cache folder.

    ``boards_dir``: leaderboards (``<id>/leaderboard.csv``) or an MLE-bench checkout. ``mlebench_python``: the
    interpreter of an MLE-bench installation, which grades its competitions outside the paper's twelve. ``keep_leaks``
    leaves fields in the public data that give the label away; every score is then flagged.
    """

    id: str = "diamonds"
    others: tuple[str, ...] = ()
    data_dir: str = ""
    boards_dir: str = ""
    mlebench_python: str = ""
    keep_leaks: bool = False

    @model_validator(mode="after")
    def _each_once(self) -> CompetitionConfig:
        if len(set(self.ids)) < len(self.ids):
            raise ValueError(
                f"others = {list(self.others)} names a competition twice, or {self.id} itself: leave it out"
            )
        return self

    @property
    def ids(self) -> tuple[str, ...]:
        """All competitions of the run, in the order of the slots."""
        return (self.id, *self.others)

    def of_episode(self, place: int) -> str:
        """The competition that the episode at a place of every wave is about."""
        return self.ids[place % len(self.ids)]


class InstrumentConfig(Section):
    """``inserter``: who places the milestone prints: rules (``ast``), a frozen model that picks lines (``lm_lines``)
    or writes the program again (``lm_rewrite``, the paper); ``none`` places none. ``model`` is a folder of
    transformers; empty = the policy's backbone without its adapters. ``on_failure``: what runs where the model fails,
    the program with the prints of ``ast`` or the original as it is (the paper)."""

    inserter: Literal["ast", "lm_lines", "lm_rewrite", "none"] = "ast"
    model: str = ""
    on_failure: Literal["ast", "original"] = "ast"

    @property
    def asks_model(self) -> bool:
        """Whether a language model is needed."""
        return self.inserter in ("lm_lines", "lm_rewrite")


class SandboxConfig(Section):
    """Limits of one execution. ``slots`` executions run at once; 0 = one per core."""

    backend: Literal["auto", "docker", "bubblewrap", "process"] = "auto"
    allow_unsafe_process: bool = False
    image: str = "mlrl-sandbox-cpu:latest"
    engine_url: str = ""
    runtime: str = ""  # of the engine, e.g. runsc; empty = its default
    models_dir: str = ""  # a folder of pretrained models, read-only at /models; empty = none
    gpus: tuple[str, ...] = ()  # UUIDs of devices or MIG slices for solutions, one a run; docker only
    time_limit_s: float = Field(600, gt=0)
    memory_mb: int = Field(16384, ge=64)
    cpus: float = Field(1.0, gt=0)
    pids: int = Field(256, ge=8)
    slots: int = Field(0, ge=0)
    out_mb: int = Field(256, ge=1)
    tmp_mb: int = Field(0, ge=0)  # 0 = a quarter of the memory
    shm_mb: int = Field(0, ge=0)  # shared memory; 0 = a quarter of the memory
    nofile: int = Field(1024, ge=64)
    output_keep_kb: int = Field(256, ge=1)  # per stream: head, and the same again as tail
    output_limit_mb: int = Field(64, ge=1)  # both streams together
    submission_mb: int = Field(64, ge=1)
    slot_wait_s: float = Field(3600, gt=0)


MAX_MILESTONES = 7  # prints that an instrumented program can hold (method.md section 3)


class RewardConfig(Section):
    """The rule of method.md section 4.

    ``reward_map``: ``bounded`` puts the constant baseline at 0 and the strong one at 1, ``board_rank`` is the share of
    the leaderboard's teams beaten. ``map_power``: what these two give above 0 is raised to it; above 1 the difference
    between a good solution and the best one counts for more than the one between a bad one and a middling one, which
    a policy learns first anyway. ``partial_credit`` of a failed program: for each milestone it printed, for the share
    of its lines before the exception (``error_line``: as much as all milestones are worth), or none.
    ``credit_on_valid`` adds it to graded programs as well. ``failure_charge``: the duration that a failed program
    counts with in the duration weights. ``report_split``: rewards are paid on one half of the private answers and
    results reported on the other.
    """

    reward_map: Literal["raw_signed", "bounded", "board_rank"] = "raw_signed"
    map_power: float = Field(1.0, gt=0, le=16)
    failure: float = -10.0
    partial_credit: Literal["milestones", "error_line", "none"] = "milestones"
    milestone_credit: float = Field(0.1, ge=0)
    credit_on_valid: bool = False
    valid_floor: float = -5.0
    failure_charge: Literal["elapsed", "limit"] = "elapsed"
    report_split: bool = False

    @model_validator(mode="after")
    def _failure_below_valid(self) -> RewardConfig:
        best_failure = self.failure + MAX_MILESTONES * self.milestone_credit
        if best_failure >= self.valid_floor:
            raise ValueError(
                f"a failed program could earn {best_failure:g}, not less than reward.valid_floor = "
                f"{self.valid_floor:g}: lower reward.failure or reward.milestone_credit"
            )
        return self

    @model_validator(mode="after")
    def _power_of_a_share(self) -> RewardConfig:
        if self.map_power != 1 and self.reward_map == "raw_signed":
            raise ValueError("map_power needs reward_map = bounded or board_rank: raw scores have no common scale")
        return self


class HacksConfig(Section):
    """What a suspicion costs a graded program: nothing (``flag``), all that is above ``reward.valid_floor``, or as
    much as a failure (``penalty``). Every suspicion is logged in any case; see ``agent/hacks.py``."""

    sample_copy: HackAction = "valid_floor"
    constant_predictions: HackAction = "valid_floor"
    no_training: HackAction = "penalty"
    reads_source: HackAction = "flag"
    searches_answers: HackAction = "flag"
    sleeping: HackAction = "flag"
    metric_trick: HackAction = "flag"
