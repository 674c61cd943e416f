"""How experience becomes an update: batch policy, duration weighting, PPO, the learner's process."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from mlrl_core.config.base import Section


class BatchConfig(Section):
    """Which completed solutions enter an update, and what each counts (docs/duration.md)."""

    size: int = Field(128, ge=1)
    batch_policy: Literal["wait_all", "first_k_carry", "first_k_discard", "window"] = "wait_all"
    max_staleness: int = Field(8, ge=1)  # first_k_carry: versions that a solution may be older than the one it trains
    on_stale: Literal["wait", "drop"] = "wait"  # first_k_carry: for what would pass max_staleness
    window_s: float = Field(0.0, ge=0)  # window: seconds from the first start of the wave's programs
    duration_weighting: Literal["none", "mean_normalised", "clipped", "inverse_inclusion", "reward_rate"] = "none"
    duration_floor_s: float = Field(1.0, ge=0)
    duration_weight_cap: float = Field(5.0, gt=0)  # clipped
    inclusion_weight_cap: float = Field(20.0, gt=0)  # inverse_inclusion
    time_charge: float = Field(1.0, ge=0)  # reward_rate: times seconds times the rate, off the reward

    @model_validator(mode="after")
    def _complete(self) -> BatchConfig:
        if self.batch_policy == "window" and not self.window_s:
            raise ValueError("batch_policy = window needs window_s, the seconds that a batch stays open")
        if self.duration_weighting == "reward_rate" and not self.duration_floor_s:
            raise ValueError("duration_weighting = reward_rate needs duration_floor_s above 0: a rate is per second")
        return self


class PPOConfig(Section):
    """Names and defaults of learner.md section 3. ``learning_rate`` 0 switches the trainer off."""

    gamma: float = Field(1.0, gt=0, le=1)
    gae_lambda: float = Field(1.0, ge=0, le=1)
    clip: float = Field(0.2, gt=0, lt=1)
    dual_clip: float = Field(3.0, gt=1)
    value_clip: float = Field(0.5, gt=0)
    kl_coef: float = Field(0.001, ge=0)  # of the KL to the reference
    kl_place: Literal["reward", "loss"] = "reward"
    max_kl: float = Field(0.0, ge=0)  # per token and update: the policy goes back until it is as close; 0 = no bound
    step_kl_coef: float = Field(0.0, ge=0)  # of the KL to the sampling policy, in the loss
    entropy_coef: float = Field(0.0, ge=0)
    adam_betas: tuple[Annotated[float, Field(ge=0, lt=1)], Annotated[float, Field(ge=0, lt=1)]] = (0.9, 0.999)
    # Near the size of a gradient's entries it makes of Adam a descent by size: entries that are all noise stay put.
    adam_eps: float = Field(1e-8, gt=0)
    learning_rate: float = Field(1e-5, ge=0, le=1)
    critic_learning_rate: float = Field(1e-5, ge=0, le=1)
    max_grad_norm: float = Field(1.0, gt=0)
    epochs: int = Field(1, ge=1)
    critic_epochs: int = Field(0, ge=0)  # 0: as many as epochs
    minibatches: int = Field(1, ge=1)
    micro_batch_tokens: int = Field(16384, ge=1)
    critic_warmup_updates: int = Field(0, ge=0)
    advantage: Literal["gae", "group", "rloo"] = "gae"  # the last two are critic-free, against responses to one prompt
    importance_correction: Literal["none", "tis_token"] = "none"  # tis_token: for a sampler with other numerics

    @model_validator(mode="after")
    def _critic_exists(self) -> PPOConfig:
        if self.advantage != "gae" and self.critic_warmup_updates:
            raise ValueError(
                f"critic_warmup_updates = {self.critic_warmup_updates}, but advantage = {self.advantage} has no "
                "critic: set it to 0 or advantage to gae"
            )
        return self


class LearnerConfig(Section):
    """The learner's processes and the limits on waiting for them. ``ranks`` processes shard the model (FSDP2)."""

    ranks: int = Field(1, ge=1)
    device: Literal["cpu", "cuda"] = "cpu"
    threads: int = Field(0, ge=0)  # of each rank; 0 = all cores, shared between the ranks
    gradient_checkpointing: bool = False  # a third more work for a fraction of the memory
    autocast: bool = False  # bfloat16 matrix products in the decoder; weights, head and losses keep their dtype
    max_updates_per_process: int = Field(50, ge=1)  # then the group starts afresh, and takes its leaks with it
    mismatch_limit: float = Field(0.1, gt=0)  # mean |log-prob of learner - of sampler| that a new process accepts
    start_deadline_s: float = Field(300, gt=0)
    update_deadline_s: float = Field(1800, gt=0)
