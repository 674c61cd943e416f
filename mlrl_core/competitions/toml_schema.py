"""Schema of ``competition.toml`` (pydantic, closed: an unknown key is an error).

The smallest one of a user's own, in a folder with ``public/`` (what programs see: data, ``description.md``,
``sample_submission.csv``) and ``private/answers.csv``::

    id = "churn"
    metric = "auc"
    id_column = "customer"
    target_columns = ["left"]

Optional: ``[rules]`` (columns, value_range, row_sum, pairing), ``[bounds]`` (constant_score, strong_score),
``[baselines.NAME]`` (score, fit_s), ``[execution]`` (time_limit_s, cpus, memory_mb, gpus, image), ``leaderboard``, and
instead of a named metric ``grader = "private/grade.py"`` with ``is_lower_better``.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from mlrl_core.competitions.metrics import METRICS
from mlrl_core.config.base import Section


class RulesSection(Section):
    columns: Literal["ignore", "refuse", "refuse_unless_id_first"] = "ignore"
    value_range: tuple[float, float] | None = None
    row_sum: Literal["isclose", "round6"] | None = None
    pairing: Literal["by_id", "by_position"] = "by_id"


class BoundsSection(Section):
    constant_score: float | None = None
    strong_score: float | None = None


class BaselineSection(Section):
    score: float
    fit_s: float | None = None


class ExecutionSection(Section):
    time_limit_s: float | None = Field(None, gt=0)
    cpus: float | None = Field(None, gt=0)
    memory_mb: int | None = Field(None, ge=64)
    gpus: int | None = Field(None, ge=0)
    image: str | None = None


class CompetitionFile(Section):
    """``metric`` is a name from the table of metrics, or ``custom`` together with ``grader`` (a script of the user's)
    and ``is_lower_better``."""

    id: str = Field(pattern=r"^[a-z0-9][a-z0-9._-]*$")
    name: str = ""
    metric: str
    is_lower_better: bool
    id_column: str | None = None
    target_columns: tuple[str, ...] = ()
    public_dir: str = "public"
    answers: str = "private/answers.csv"
    sample_submission: str = "public/sample_submission.csv"
    grader: str | None = None
    leaderboard: str | None = None
    source: Literal["builtin", "folder"] = "folder"
    spec_digest: str = ""
    rules: RulesSection = RulesSection()
    bounds: BoundsSection = BoundsSection()
    baselines: dict[str, BaselineSection] = Field(default_factory=dict)
    execution: ExecutionSection = ExecutionSection()

    @model_validator(mode="before")
    @classmethod
    def _direction_of_named_metric(cls, data: object) -> object:
        if not isinstance(data, dict) or "grader" in data or not isinstance(data.get("metric"), str):
            return data
        if data["metric"] not in METRICS:
            raise ValueError(
                f"metric '{data['metric']}' is unknown (known: {', '.join(sorted(METRICS))}; or set grader)"
            )
        return {"is_lower_better": METRICS[data["metric"]].is_lower_better, **data}

    @model_validator(mode="after")
    def _coherent(self) -> CompetitionFile:
        if self.grader is None:
            if self.is_lower_better != METRICS[self.metric].is_lower_better:
                raise ValueError(f"is_lower_better contradicts metric '{self.metric}': leave it out")
            if not self.target_columns:
                raise ValueError("target_columns is empty: name the columns to predict")
            if self.rules.pairing == "by_id" and not self.id_column:
                raise ValueError('id_column is missing: name it, or set rules.pairing = "by_position"')
        return self
