"""MLE-bench: the graders of the paper's twelve competitions and loading of its prepared data."""

from mlrl_core.competitions.mlebench.specs import PAPER12, PaperSpec

__all__ = ["PAPER12", "PaperSpec"]
