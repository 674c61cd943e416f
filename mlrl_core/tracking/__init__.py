"""MLflow, kept at arm's length: a tracker that can neither stop nor slow down training.

mlflow is imported by the tracker's own thread, never by importing this package.
"""

from mlrl_core.tracking.tracker import EndStatus, Tracker, open_tracker, tracking_uri

__all__ = ["EndStatus", "Tracker", "open_tracker", "tracking_uri"]
