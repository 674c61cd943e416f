"""The paper's twelve competitions as MLE-bench grades them: one row each (grading rules sections 6 and 7)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib import resources

from mlrl_core.competitions.competition import Rules

UNIT = (0.0, 1.0)
# The 99 species of leaf-classification: its probability columns.
LEAF_SPECIES: tuple[str, ...] = tuple(
    json.loads(resources.files(__package__).joinpath("leaf_species.json").read_text())
)


@dataclass(frozen=True, slots=True)
class PaperSpec:
    """``sample_score`` is what MLE-bench's own tests expect of the unchanged sample submission (None: not a number);
    ``strong_score`` is the gold line of the Kaggle board, or the silver line where gold is out of honest reach (0 for
    leaf-classification, a leak for random-acts-of-pizza). They are the bounds of the ``bounded`` reward map.
    ``drop_fields`` are fields of the public data that give the label away, ``disk_mb`` is the size of the data."""

    id: str
    metric: str
    is_lower_better: bool
    rules: Rules
    answers: str
    sample_submission: str
    test_rows: int
    sample_score: float | None
    strong_score: float
    disk_mb: int
    time_limit_s: float = 600
    drop_fields: tuple[str, ...] = ()


_SPECS = (
    PaperSpec(
        "detecting-insults-in-social-commentary",
        "auc",
        False,
        Rules("Comment", ("Insult",), value_range=UNIT),
        answers="prepared/private/test.csv",
        sample_submission="prepared/public/sample_submission_null.csv",
        test_rows=2647,
        sample_score=0.5,
        strong_score=0.83321,
        disk_mb=2,
    ),
    PaperSpec(
        "learning-agency-lab-automated-essay-scoring-2",
        "quadratic_weighted_kappa",
        False,
        Rules("essay_id", ("score",)),
        answers="prepared/private/answers.csv",
        sample_submission="prepared/public/sample_submission.csv",
        test_rows=1731,
        sample_score=0.01323,
        strong_score=0.83583,
        disk_mb=36,
    ),
    PaperSpec(
        "random-acts-of-pizza",
        "auc",
        False,
        Rules("request_id", ("requester_received_pizza",), value_range=UNIT),
        answers="prepared/private/test.csv",
        sample_submission="prepared/public/sampleSubmission.csv",
        test_rows=1162,
        sample_score=0.5,
        strong_score=0.76482,
        disk_mb=3,
        time_limit_s=1200,
        drop_fields=("giver_username_if_known",),
    ),
    PaperSpec(
        "tweet-sentiment-extraction",
        "word_jaccard",
        False,
        Rules("textID", ("selected_text",)),
        answers="prepared/private/test.csv",
        sample_submission="prepared/public/sample_submission.csv",
        test_rows=2749,
        sample_score=0.0,
        strong_score=0.72689,
        disk_mb=4,
    ),
    PaperSpec(
        "tabular-playground-series-may-2022",
        "auc",
        False,
        Rules("id", ("target",), value_range=UNIT),
        answers="prepared/private/test.csv",
        sample_submission="prepared/public/sample_submission.csv",
        test_rows=100_000,
        sample_score=0.5,
        strong_score=0.99823,
        disk_mb=570,
        time_limit_s=1200,
    ),
    PaperSpec(
        "tabular-playground-series-dec-2021",
        "accuracy",
        False,
        Rules("Id", ("Cover_Type",)),
        answers="prepared/private/test.csv",
        sample_submission="prepared/public/sample_submission.csv",
        test_rows=400_000,
        sample_score=0.56458,
        strong_score=0.9566,
        disk_mb=700,
        time_limit_s=1200,
    ),
    PaperSpec(
        "us-patent-phrase-to-phrase-matching",
        "pearson",
        False,
        Rules("id", ("score",)),
        answers="prepared/private/test.csv",
        sample_submission="prepared/public/sample_submission.csv",
        test_rows=3648,
        sample_score=None,
        strong_score=0.87,
        disk_mb=2,
    ),
    PaperSpec(
        "plant-pathology-2020-fgvc7",
        "mean_column_auc",
        False,
        Rules("image_id", ("healthy", "multiple_diseases", "rust", "scab"), columns="refuse"),
        answers="prepared/private/test.csv",
        sample_submission="prepared/public/sample_submission.csv",
        test_rows=183,
        sample_score=0.5,
        strong_score=0.97836,
        disk_mb=800,
    ),
    PaperSpec(
        "leaf-classification",
        "multiclass_log_loss",
        True,
        Rules("id", LEAF_SPECIES, columns="refuse", value_range=UNIT, row_sum="isclose"),
        answers="prepared/private/test.csv",
        sample_submission="prepared/public/sample_submission.csv",
        test_rows=99,
        sample_score=4.59512,
        strong_score=0.00791,
        disk_mb=36,
    ),
    PaperSpec(
        "nomad2018-predict-transparent-conductors",
        "mean_column_rmsle",
        True,
        Rules("id", ("formation_energy_ev_natom", "bandgap_energy_ev"), pairing="by_position"),
        answers="prepared/private/test.csv",
        sample_submission="prepared/public/sample_submission.csv",
        test_rows=240,
        sample_score=0.21174,
        strong_score=0.05589,
        disk_mb=6,
        time_limit_s=1200,
    ),
    PaperSpec(
        "spooky-author-identification",
        "multiclass_log_loss",
        True,
        Rules("id", ("EAP", "HPL", "MWS"), columns="refuse_unless_id_first", value_range=UNIT, row_sum="isclose"),
        answers="prepared/private/test.csv",
        sample_submission="prepared/public/sample_submission.csv",
        test_rows=1958,
        sample_score=1.08468,
        strong_score=0.16506,
        disk_mb=2,
    ),
    PaperSpec(
        "lmsys-chatbot-arena",
        "multiclass_log_loss",
        True,
        Rules("id", ("winner_model_a", "winner_model_b", "winner_tie"), value_range=UNIT, row_sum="round6"),
        answers="prepared/private/answers.csv",
        sample_submission="prepared/public/sample_submission.csv",
        test_rows=5748,
        sample_score=1.09861,
        strong_score=0.98392,
        disk_mb=185,
    ),
)

PAPER12: dict[str, PaperSpec] = {spec.id: spec for spec in _SPECS}
