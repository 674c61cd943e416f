"""From a raw score to the part of the reward that rises with it (method.md section 4)."""

from __future__ import annotations

import math

from mlrl_core.competitions.board import percentile
from mlrl_core.competitions.competition import Competition
from mlrl_core.errors import MlrlError

BOUNDED_CAP = 1.5  # a little room above the strong baseline, so that beating it still pays
BOUNDED_LIMIT = 1e9  # below: only so that a division never overflows
# Errors with a zero: their maps work on the logarithm, so that halving the error is worth the same everywhere. On a
# linear scale a ridge already earns most of the range between a constant and boosted trees, and what separates the
# good models would drown in noise.
LOG_METRICS = frozenset({"rmsle", "mean_column_rmsle", "rmse", "mae", "log_loss", "multiclass_log_loss"})


def map_score(competition: Competition, raw: float, reward_map: str, power: float = 1.0) -> float:
    """The mapped score of a valid submission; higher is always better and the result is always finite.

    ``raw_signed``: the raw score, sign flipped when lower is better. ``bounded``: 0 at ``constant_score``, 1 at
    ``strong_score``, at most 1.5; on the logarithm of the error for error metrics, linear for the others.
    ``board_rank``: the share of the leaderboard's teams beaten, ties half. What these two give above 0 is raised to
    ``power``. Floors (``reward.valid_floor``) are the caller's. Raises MlrlError when the map needs bounds or a board
    that the competition lacks.
    """
    if not math.isfinite(raw):
        raise ValueError(f"a score that is not finite is not a valid score: {raw}")
    if reward_map == "raw_signed":
        return -raw if competition.is_lower_better else raw
    share = _share(competition, raw, reward_map)
    return share**power if share > 0 else share


def check_map(competition: Competition, reward_map: str) -> None:
    """Raises MlrlError when the map needs bounds or a board that the competition lacks."""
    if reward_map == "raw_signed":
        return
    if reward_map == "board_rank":
        if competition.board is None:
            raise MlrlError(
                f"competition '{competition.id}' has no leaderboard: name its folder in competition.boards_dir, or use "
                "another reward.reward_map"
            )
        return
    if reward_map != "bounded":
        raise MlrlError(f"unknown reward map '{reward_map}' (raw_signed, bounded, board_rank)")
    constant, strong = competition.constant_score, competition.strong_score
    if constant is None or strong is None or constant == strong:
        raise MlrlError(
            f"competition '{competition.id}' has no constant_score and strong_score: add them under [bounds] in its "
            "competition.toml or use reward.reward_map = raw_signed"
        )


def _share(competition: Competition, raw: float, reward_map: str) -> float:
    check_map(competition, reward_map)
    if reward_map == "board_rank":
        assert competition.board is not None
        return percentile(raw, competition.board, competition.is_lower_better)
    constant, strong = competition.constant_score, competition.strong_score
    assert constant is not None
    assert strong is not None
    if competition.metric in LOG_METRICS and competition.is_lower_better and constant > 0 and strong > 0:
        if raw <= 0:
            return BOUNDED_CAP
        share = (math.log(constant) - math.log(raw)) / (math.log(constant) - math.log(strong))
    else:
        share = (raw - constant) / (strong - constant)
    return max(-BOUNDED_LIMIT, min(share, BOUNDED_CAP))
