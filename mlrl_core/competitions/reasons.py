"""Why a submission is invalid: a closed vocabulary. No reason reveals anything of the answers."""

from __future__ import annotations

# No submission was collected: the file is not there or is not a plain file of its own.
NO_SUBMISSION = {
    "missing": "there is no such file",
    "wrong_suffix": "the file's name does not end in .csv",
    "directory": "it is a folder",
    "symlink": "it is a symbolic link",
    "hard_link": "it has another name elsewhere (a hard link)",
    "not_regular": "it is no regular file (a pipe, socket or device)",
}
INVALID = {
    "unreadable": "the file can't be opened",
    "too_large": "the file is far larger than the sample submission",
    "not_utf8": "the file is not UTF-8 text",
    "ragged_row": "a row has more fields than the header",
    "open_quote": "a quote is opened and never closed",
    "missing_columns": "a required column is not there",
    "unexpected_columns": "the columns are not exactly the required ones",
    "wrong_row_count": "the number of rows is not that of the test set",
    "wrong_ids": "the ids are not those of the test set",
    "not_numeric": "a column that must hold numbers holds something else",
    "missing_values": "a prediction is missing",
    "infinite_values": "a prediction is infinite",
    "out_of_range": "a prediction is outside the allowed range",
    "row_sum": "the probabilities of a row do not sum to one",
    "not_a_label": "a predicted label is not a whole number",
    "wrong_label_type": "words were predicted where the labels are numbers, or the reverse",
    "undefined_score": "the metric is undefined for these predictions",
    "non_finite_score": "the score is not a finite number",
    "bad_answers": "the answers do not fit the metric",
    "custom_grader": "the competition's own grader refused it",
    "grader_failed": "grading did not finish, though the sample submission grades",
}
REASONS: dict[str, str] = NO_SUBMISSION | INVALID


class InvalidSubmission(Exception):
    """A submission can't be scored. ``detail`` is for the host only; it speaks of the submission, not the answers."""

    def __init__(self, reason: str, detail: str = "") -> None:
        if reason not in REASONS:
            raise ValueError(f"'{reason}' is not a reason of the vocabulary")
        super().__init__(f"{reason}: {detail or REASONS[reason]}")
        self.reason = reason
        self.detail = detail or REASONS[reason]
