"""The whole configuration of a run."""

from __future__ import annotations

import math

from pydantic import Field, model_validator

from mlrl_core.config.base import Section
from mlrl_core.config.environment import (
    CompetitionConfig,
    HacksConfig,
    InstrumentConfig,
    RewardConfig,
    SandboxConfig,
)
from mlrl_core.config.learning import BatchConfig, LearnerConfig, PPOConfig
from mlrl_core.config.policy import (
    GenerationConfig,
    ImproveConfig,
    PolicyConfig,
    PromptConfig,
    SamplingConfig,
    WarmstartConfig,
)


class TrackingConfig(Section):
    """MLflow. An empty ``uri`` is a sqlite store beside the run directory (``<runs>/mlflow.db``)."""

    enabled: bool = True
    uri: str = ""
    experiment: str = "mlrl"


class RunConfig(Section):
    """Class defaults are the ``default`` profile of method.md; profiles override them.

    ``wave_size`` solutions (improvements included) are launched for each step; with ``batch.batch_policy =
    first_k_carry`` so many are in flight.
    """

    profile: str = "default"
    seed: int = Field(0, ge=0)
    steps: int = Field(300, ge=1)
    wave_size: int = Field(128, ge=1, le=512)
    competition: CompetitionConfig = CompetitionConfig()
    policy: PolicyConfig = PolicyConfig()
    prompt: PromptConfig = PromptConfig()
    improve: ImproveConfig = ImproveConfig()
    sampling: SamplingConfig = SamplingConfig()
    generation: GenerationConfig = GenerationConfig()
    warmstart: WarmstartConfig = WarmstartConfig()
    instrument: InstrumentConfig = InstrumentConfig()
    sandbox: SandboxConfig = SandboxConfig()
    reward: RewardConfig = RewardConfig()
    hacks: HacksConfig = HacksConfig()
    batch: BatchConfig = BatchConfig()
    ppo: PPOConfig = PPOConfig()
    learner: LearnerConfig = LearnerConfig()
    tracking: TrackingConfig = TrackingConfig()

    @property
    def short_prompts(self) -> bool:
        """What ``prompt.contents`` means for this policy."""
        return self.prompt.contents == "short" or (self.prompt.contents == "auto" and self.warmstart.demonstrations > 0)

    def competition_of_slot(self, slot: int) -> str:
        """The competition that a slot of every wave is asked for."""
        return self.competition.of_episode(slot // self.improve.actions)

    @model_validator(mode="after")
    def _nano_is_built_from_demonstrations(self) -> RunConfig:
        if self.policy.model == "nano" and not self.warmstart.demonstrations:
            raise ValueError(
                "policy.model = nano is built from demonstrations: set warmstart.demonstrations, say to 6000"
            )
        return self

    @model_validator(mode="after")
    def _a_warm_start_knows_one_prompt(self) -> RunConfig:
        if self.warmstart.demonstrations and not self.short_prompts:
            raise ValueError(
                f"prompt.contents = full, but policy.model = {self.policy.model} is warm-started on the short prompt: "
                "set it to auto, or warmstart.demonstrations to 0"
            )
        return self

    @model_validator(mode="after")
    def _a_warm_start_knows_one_competition(self) -> RunConfig:
        if self.warmstart.demonstrations and self.competition.others:
            raise ValueError(
                f"competition.others needs a policy without a warm start: {self.policy.model} gets one on the one "
                "competition.id"
            )
        return self

    @property
    def is_rounded(self) -> bool:
        """Whether sampler or learner compute in bfloat16, so that their log-probabilities differ: a fixed token's by
        some hundredths, a rare one's by more than a nat. In float32 on both sides they agree to about 1e-6."""
        return self.learner.autocast or "bfloat16" in (self.policy.dtype, self.generation.dtype)

    @model_validator(mode="after")
    def _wave_fills_batch(self) -> RunConfig:
        batch, sizes = self.batch, f"batch.size = {self.batch.size} but wave_size = {self.wave_size}"
        if self.wave_size % self.improve.actions or batch.size % self.improve.actions:
            raise ValueError(
                f"improve.episode = two_step needs even numbers, a solution and its improvement each: batch.size = "
                f"{batch.size}, wave_size = {self.wave_size}"
            )
        if batch.batch_policy in ("wait_all", "window") and batch.size != self.wave_size:
            raise ValueError(
                f"{sizes}: with batch.batch_policy = {batch.batch_policy} one wave is one batch, set both to the same "
                "number"
            )
        if batch.size > self.wave_size:
            raise ValueError(f"{sizes}: so many in flight never fill a batch, raise wave_size")
        if batch.batch_policy == "first_k_carry" and batch.size * (batch.max_staleness + 1) < self.wave_size:
            need = math.ceil(self.wave_size / batch.size) - 1
            raise ValueError(
                f"{sizes}: what is in flight takes {need} more versions to be used, raise batch.max_staleness "
                f"({batch.max_staleness}) to {need} or lower wave_size"
            )
        return self
