"""Words that stand for a missing value in a CSV."""

from __future__ import annotations

# Exactly these words, quoted or not, and the empty cell are missing values; "none", "na" or "NAN" are text.
MISSING = frozenset(
    (
        "",
        "NA",
        "N/A",
        "n/a",
        "#N/A",
        "#N/A N/A",
        "#NA",
        "NULL",
        "null",
        "None",
        "NaN",
        "nan",
        "-NaN",
        "-nan",
        "<NA>",
        "1.#IND",
        "1.#QNAN",
        "-1.#IND",
        "-1.#QNAN",
    )
)
