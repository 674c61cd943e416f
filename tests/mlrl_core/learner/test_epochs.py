"""How often policy and critic see a batch, and what the optimiser makes of small gradients."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from mlrl_core.config import RunConfig
from mlrl_core.learner import engine as engine_module
from mlrl_core.learner.batch_file import BatchRow
from mlrl_core.learner.engine import Engine

MakeConfig = Callable[..., RunConfig]
MakeRows = Callable[..., list[BatchRow]]


@pytest.mark.parametrize(("policy", "critic", "seen"), [(4, 0, (4, 4)), (4, 2, (4, 2)), (1, 3, (1, 3))])
def test_policy_and_critic_have_epochs_of_their_own(
    backbone: Path,
    make_config: MakeConfig,
    make_rows: MakeRows,
    monkeypatch: pytest.MonkeyPatch,
    policy: int,
    critic: int,
    seen: tuple[int, int],
) -> None:
    passes = {"policy_gradients": 0, "critic_gradients": 0}
    for name in passes:
        real = getattr(engine_module, name)

        def counting(*arguments: object, real: Callable[..., None] = real, name: str = name) -> None:
            passes[name] += 1
            real(*arguments)

        monkeypatch.setattr(engine_module, name, counting)
    sets = ["ppo.minibatches=1", f"ppo.epochs={policy}", f"ppo.critic_epochs={critic}"]
    metrics = Engine(backbone, make_config(*sets)).update(make_rows([5, 1, 12, 2]))
    assert (passes["policy_gradients"], passes["critic_gradients"]) == seen
    assert metrics["learner/steps"] == max(seen)


def test_a_large_epsilon_makes_steps_follow_the_gradient(
    backbone: Path, make_config: MakeConfig, make_rows: MakeRows
) -> None:
    """With epsilon far above the gradient, Adam's first step is rate x gradient / epsilon: ten times less for ten
    times more epsilon; with epsilon far below, it is the rate, whatever the gradient."""

    def moved(eps: float) -> float:
        config = make_config("ppo.epochs=1", "ppo.minibatches=1", "ppo.learning_rate=1e-3", f"ppo.adam_eps={eps}")
        return Engine(backbone, config).update(make_rows([5, 1, 12, 2]))["adapter/delta_norm"]

    assert moved(1e3) == pytest.approx(10 * moved(1e4), rel=0.01)
    assert moved(1e-12) == pytest.approx(moved(1e-11), rel=0.05)
