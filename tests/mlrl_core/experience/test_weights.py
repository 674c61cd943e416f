"""Duration weights against the numbers of learner.md 3."""

from __future__ import annotations

import pytest

from mlrl_core.experience.weights import duration_weights, effective_sample_share


def test_none_is_one_each() -> None:
    assert duration_weights([0.1, 60], "none", 1.0) == [1, 1]


def test_mean_normalised_by_hand() -> None:
    assert duration_weights([5] * 7 + [765], "mean_normalised", 1.0) == pytest.approx([0.05] * 7 + [7.65])
    assert duration_weights([0.1, 60, 60, 120], "mean_normalised", 0.0)[0] == pytest.approx(0.00167, abs=1e-5)
    assert duration_weights([0.1, 60, 60, 120], "mean_normalised", 1.0)[0] == pytest.approx(0.0166, abs=1e-4)


def test_the_mean_is_one_per_competition() -> None:
    weights = duration_weights([2, 4, 200, 400, 600], "mean_normalised", 1.0, ["a", "a", "b", "b", "b"])
    assert weights == pytest.approx([2 / 3, 4 / 3, 0.5, 1, 1.5])


def test_durations_of_zero_weigh_the_same() -> None:
    assert duration_weights([0, 0], "mean_normalised", 0.0) == [1, 1]
    assert duration_weights([], "mean_normalised", 1.0) == []


def test_lengths_must_agree() -> None:
    with pytest.raises(ValueError, match="2 durations but 1"):
        duration_weights([1, 2], "mean_normalised", 1.0, ["a"])


def test_effective_sample_share() -> None:
    assert effective_sample_share([1, 1, 1]) == pytest.approx(1)
    assert effective_sample_share([0.05] * 7 + [7.65]) * 8 == pytest.approx(1.09, abs=0.005)
    assert effective_sample_share([]) == 0
