"""Logging of a run: everything into ``<run>/train.log``, nothing into the live display."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_FORMAT = "%(asctime)s %(levelname)-7s %(name)s %(message)s"


@contextmanager
def quiet(path: Path) -> Iterator[None]:
    """Send this process's logs and warnings to ``path`` instead of the terminal. Enter before prefect is imported,
    which sets up its handlers by its environment when it is imported."""
    # One line per task run, sent to the API as well, says nothing that its state does not.
    os.environ.setdefault("PREFECT_LOGGING_LOGGERS_PREFECT_TASK_RUNS_LEVEL", "WARNING")
    os.environ.setdefault("TQDM_DISABLE", "1")  # bars of libraries would break the display
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
    logging.captureWarnings(True)
    try:
        yield
    finally:
        logging.captureWarnings(False)
        for logger in writers:
            logger.removeHandler(handler)
        for logger, old in silenced:
            logger.addHandler(old)
        handler.close()
