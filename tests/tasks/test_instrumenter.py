"""Which instrumenter a run has follows from its configuration, and MLflow says which."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlrl_core.config import load_config
from mlrl_core.errors import MlrlError
from mlrl_core.tracking.names import ablation_params
from tasks.instrument import open_instrumenter

CODE = "import os\nprint(os.name)\n"


@pytest.mark.parametrize(("inserter", "milestones"), [("ast", ("imported packages",)), ("none", ())])
def test_without_a_model(inserter: str, milestones: tuple[str, ...], tmp_path: Path) -> None:
    config = load_config("nano", [f"instrument.inserter={inserter}"])
    program = open_instrumenter(config, tmp_path)(CODE, "#mlrl:00:")
    assert (program.milestones, program.inserter) == (milestones, inserter)


def test_a_folder_without_a_model_is_one_line(tmp_path: Path) -> None:
    config = load_config("nano", ["instrument.inserter=lm_lines", f"instrument.model={tmp_path}"])
    with pytest.raises(MlrlError, match=r"instrument\.model = "):
        open_instrumenter(config, tmp_path)


@pytest.mark.parametrize(
    ("overrides", "credit"),
    [
        ([], "ast_prints"),
        (["instrument.inserter=lm_lines"], "lm_prints"),
        (["instrument.inserter=lm_rewrite"], "lm_prints"),
        (["instrument.inserter=none"], "none"),
        (["reward.partial_credit=error_line"], "error_line"),
        (["reward.partial_credit=none"], "none"),
    ],
)
def test_parameters_say_what_earns_partial_credit(overrides: list[str], credit: str) -> None:
    assert ablation_params(load_config("nano", overrides)) == {"partial_credit": credit, "scope": "per_task"}


def test_parameters_say_whether_there_are_several_competitions() -> None:
    config = load_config("default", ["competition.others=['titanic']"])
    assert ablation_params(config)["scope"] == "multi_task"
