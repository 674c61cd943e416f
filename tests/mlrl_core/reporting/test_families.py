from __future__ import annotations

import pytest

from mlrl_core.reporting.families import NO_MODEL, UNPARSABLE, family_shares, model_family


@pytest.mark.parametrize(
    ("code", "family"),
    [
        ("from sklearn.linear_model import Ridge\nm = Ridge()\nm.fit(X, y)", "Ridge"),
        ("import sklearn.ensemble as e\ne.RandomForestRegressor(300).fit(X, y)", "RandomForestRegressor"),
        ("from sklearn.linear_model import Ridge as R\nR().fit(X, y)", "Ridge"),
        (
            "from sklearn.pipeline import make_pipeline\np = make_pipeline(StandardScaler(), SVC())\np.fit(X, y)",
            "SVC",
        ),
        (
            "m = VotingClassifier([('a', SVC()), ('b', LogisticRegression())]); m.fit(X, y)",
            "LogisticRegression + SVC + VotingClassifier",
        ),
        ("TransformedTargetRegressor(HistGradientBoostingRegressor()).fit(X, y)", "HistGradientBoostingRegressor"),
        ("from sklearn.linear_model import Ridge\nprint('Ridge().fit')", NO_MODEL),
        ("m = Ridge()\nprint(m)", NO_MODEL),
        ("StandardScaler().fit(X)", NO_MODEL),
        ("w = np.linalg.lstsq(X, y, rcond=None)[0]\nprint(X @ w)", "lstsq"),
        ("w = lstsq(X, y)\nRidge().fit(X, y)", "Ridge + lstsq"),
        ("def f(:\n  pass", UNPARSABLE),
        ("x = '\x00'", UNPARSABLE),
    ],
)
def test_family_of_a_program(code: str, family: str) -> None:
    assert model_family(code) == family


def test_shares_leave_out_what_is_no_program() -> None:
    codes = ["SVC().fit(X)", None, "SVC().fit(X)", "Ridge().fit(X)", "1 +"]
    assert family_shares(codes) == {"SVC": 0.5, "Ridge": 0.25, UNPARSABLE: 0.25}
    assert family_shares([None]) == {}
