"""How often policy and critic see a batch, and what the optimiser makes of small gradients."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from mlrl_core.config import RunConfig
from mlrl_core.learner import training
from mlrl_core.learner.batch_file import BatchRow
from mlrl_core.learner.engine import Engine
from tests.mlrl_core.learner.test_kl_bounds import on_policy

MakeConfig = Callable[..., RunConfig]
MakeRows = Callable[..., list[BatchRow]]


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """How often the policy's and the critic's gradients were computed."""
    counts = {"policy_gradients": 0, "critic_gradients": 0}
    for name in counts:
        real = getattr(training, name)

        def counting(*arguments: object, real: Callable[..., object] = real, name: str = name) -> object:
            counts[name] += 1
            return real(*arguments)

        monkeypatch.setattr(training, name, counting)
    return counts


@pytest.mark.parametrize(("policy", "critic", "seen"), [(4, 0, (4, 4)), (4, 2, (4, 2)), (1, 3, (1, 3))])
def test_policy_and_critic_have_epochs_of_their_own(
    backbone: Path,
    make_config: MakeConfig,
    make_rows: MakeRows,
    passes: dict[str, int],
    policy: int,
    critic: int,
    seen: tuple[int, int],
) -> None:
    sets = ["ppo.minibatches=1", "ppo.max_kl=0", f"ppo.epochs={policy}", f"ppo.critic_epochs={critic}"]
    metrics = Engine(backbone, make_config(*sets)).update(make_rows([5, 1, 12, 2]))
    assert (passes["policy_gradients"], passes["critic_gradients"]) == seen
    assert metrics["learner/steps"] == max(seen)


def test_beyond_the_bound_the_policy_takes_no_more_steps(
    backbone: Path, make_config: MakeConfig, make_rows: MakeRows, passes: dict[str, int]
) -> None:
    """The first step goes too far, the second pass sees it and is the last; the critic has all of its epochs."""
    far = ["ppo.minibatches=1", "ppo.epochs=6", "ppo.critic_epochs=6", "ppo.learning_rate=0.1", "ppo.clip=0.9"]
    config = make_config(*far, "ppo.max_kl=1e-9", "ppo.max_grad_norm=1", "ppo.adam_eps=1e-8")
    engine = Engine(backbone, config)
    metrics = engine.update(on_policy(engine, make_rows([5, 1, 12, 2])))
    assert (passes["policy_gradients"], passes["critic_gradients"]) == (2, 6)
    assert metrics["learner/kl_halvings"] >= 1


def test_a_large_epsilon_makes_steps_follow_the_gradient(
    backbone: Path, make_config: MakeConfig, make_rows: MakeRows
) -> None:
    """With epsilon far above the gradient, Adam's first step is rate x gradient / epsilon: ten times less for ten
    times more epsilon; with epsilon far below, it is the rate, whatever the gradient."""

    def moved(eps: float) -> float:
        sets = ["ppo.epochs=1", "ppo.minibatches=1", "ppo.max_kl=0", "ppo.learning_rate=1e-3", f"ppo.adam_eps={eps}"]
        return Engine(backbone, make_config(*sets)).update(make_rows([5, 1, 12, 2]))["adapter/delta_norm"]

    assert moved(1e3) == pytest.approx(10 * moved(1e4), rel=0.01)
    assert moved(1e-12) == pytest.approx(moved(1e-11), rel=0.05)
