"""Reference models for the baselines: from training features and targets to test predictions (scikit-learn).

Errors on a logarithm (RMSLE) are fitted on ``log1p`` of the target. Every model runs on one thread.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from sklearn.compose import ColumnTransformer, make_column_selector
from sklearn.decomposition import TruncatedSVD
from sklearn.ensemble import (
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

Baseline = Callable[[pd.DataFrame, pd.Series, pd.DataFrame], Any]


def baselines(metric: str) -> dict[str, Baseline]:
    """The reference models that fit a metric: regressors, classifiers, or (``pearson``) regressors on text."""
    if metric in ("rmsle", "rmse", "mae"):
        models: dict[str, Any] = {
            "ridge": Ridge(),
            "tree": DecisionTreeRegressor(min_samples_leaf=5, random_state=0),
            "forest_300": RandomForestRegressor(300, random_state=0),
            "gradient_boosting_600": GradientBoostingRegressor(
                n_estimators=600, max_depth=5, learning_rate=0.05, subsample=0.5, random_state=0
            ),
            "hist_boosting": HistGradientBoostingRegressor(random_state=0),
        }
        log = metric == "rmsle"
        return {"constant": _constant_number(log)} | {n: _regressor(m, _tabular(), log) for n, m in models.items()}
    if metric == "pearson":
        texts = {
            "ridge": Ridge(alpha=0.3),
            "svd_boosting": make_pipeline(
                TruncatedSVD(60, random_state=0), HistGradientBoostingRegressor(random_state=0)
            ),
        }
        return {"constant": _constant_number(False)} | {
            n: _regressor(m, _characters(), False) for n, m in texts.items()
        }
    models = {
        "logistic": LogisticRegression(max_iter=2000),
        "tree": DecisionTreeClassifier(min_samples_leaf=5, random_state=0),
        "forest_300": RandomForestClassifier(300, random_state=0),
        "gradient_boosting_200": GradientBoostingClassifier(n_estimators=200, subsample=0.5, random_state=0),
        "hist_boosting": HistGradientBoostingClassifier(random_state=0),
    }
    return {"constant": _constant_class(metric)} | {n: _classifier(m, metric) for n, m in models.items()}


def _tabular() -> Any:
    numbers = make_pipeline(SimpleImputer(), StandardScaler())
    words = make_pipeline(
        SimpleImputer(strategy="most_frequent"), OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    )
    return ColumnTransformer(
        [
            ("numbers", numbers, make_column_selector(dtype_include=np.number)),
            ("words", words, make_column_selector(dtype_exclude=np.number)),
        ]
    )


def _characters() -> Any:
    return ColumnTransformer([("text", TfidfVectorizer(analyzer="char_wb", ngram_range=(1, 5)), "token")])


def _constant_number(log: bool) -> Baseline:
    def run(train: pd.DataFrame, target: pd.Series, test: pd.DataFrame) -> Any:
        value = np.expm1(np.log1p(target).mean()) if log else target.mean()
        return np.full(len(test), value)

    return run


def _constant_class(metric: str) -> Baseline:
    def run(train: pd.DataFrame, target: pd.Series, test: pd.DataFrame) -> Any:
        shares = target.value_counts(normalize=True).sort_index()
        if metric == "accuracy":
            return np.full(len(test), shares.idxmax(), dtype=object)
        return np.tile(shares if metric == "multiclass_log_loss" else shares[1:], (len(test), 1))

    return run


def _regressor(model: Any, prepare: Any, log: bool) -> Baseline:
    def run(train: pd.DataFrame, target: pd.Series, test: pd.DataFrame) -> Any:
        fitted = make_pipeline(prepare, model).fit(train, np.log1p(target) if log else target)
        predicted = fitted.predict(test)
        return np.expm1(predicted) if log else predicted

    return run


def _classifier(model: Any, metric: str) -> Baseline:
    def run(train: pd.DataFrame, target: pd.Series, test: pd.DataFrame) -> Any:
        fitted = make_pipeline(_tabular(), model).fit(train, target)
        if metric == "accuracy":
            return fitted.predict(test)
        probabilities = fitted.predict_proba(test)
        return probabilities if metric == "multiclass_log_loss" else probabilities[:, 1]

    return run
