"""Logging of a run: everything into ``<run>/train.log``, nothing into the live display."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_FORMAT = "%(asctime)s %(levelname)-7s %(name)s %(message)s"


@contextmanager
def quiet(path: Path) -> Iterator[None]:
    """Send this process's logs and warnings to ``path`` instead of the terminal. Enter after importing prefect,
    which sets up its handlers when it is imported."""
    from prefect.logging.handlers import PrefectConsoleHandler

    handler = logging.FileHandler(path, delay=True)
    handler.setFormatter(logging.Formatter(_FORMAT))
    root = logging.getLogger()
    loggers = [root, *(each for each in logging.root.manager.loggerDict.values() if isinstance(each, logging.Logger))]
    silenced: list[tuple[logging.Logger, logging.Handler]] = []
    for logger in loggers:
        for old in list(logger.handlers):
            if isinstance(old, PrefectConsoleHandler) or type(old) is logging.StreamHandler:
                logger.removeHandler(old)
                silenced.append((logger, old))
    writers = [root, *{logger for logger, _ in silenced if logger is not root and not logger.propagate}]
    for logger in writers:
        logger.addHandler(handler)
    # One line per task run, sent to the API as well, says nothing that its state does not.
    task_runs = logging.getLogger("prefect.task_runs")
    level = task_runs.level
    task_runs.setLevel(logging.WARNING)
    logging.captureWarnings(True)
    try:
        yield
    finally:
        logging.captureWarnings(False)
        task_runs.setLevel(level)
        for logger in writers:
            logger.removeHandler(handler)
        for logger, old in silenced:
            logger.addHandler(old)
        handler.close()
