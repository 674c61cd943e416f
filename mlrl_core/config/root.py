"""The whole configuration of a run."""

from __future__ import annotations

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
    """Class defaults are the ``default`` profile of method.md; profiles override them."""

    profile: str = "default"
    seed: int = Field(0, ge=0)
    steps: int = Field(300, ge=1)
    wave_size: int = Field(128, ge=1, le=128)
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
        return self.prompt.contents == "short" or (self.prompt.contents == "auto" and self.policy.model == "nano")

    @model_validator(mode="after")
    def _nano_knows_one_prompt(self) -> RunConfig:
        if self.policy.model == "nano" and not self.short_prompts:
            raise ValueError(
                "prompt.contents = full, but policy.model = nano is warm-started on the short prompt: set it to auto"
            )
        return self

    @model_validator(mode="after")
    def _nano_knows_one_competition(self) -> RunConfig:
        if self.policy.model == "nano" and self.competition.others:
            raise ValueError(
                "competition.others needs another policy.model: nano is warm-started on the one competition.id"
            )
        return self

    @model_validator(mode="after")
    def _wave_fills_batch(self) -> RunConfig:
        if self.batch.batch_policy == "wait_all" and self.batch.size != self.wave_size:
            raise ValueError(
                f"batch.size = {self.batch.size} but wave_size = {self.wave_size}: with "
                "batch.batch_policy = wait_all one wave is one batch, set both to the same number"
            )
        return self
