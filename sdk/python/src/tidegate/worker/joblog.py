"""What a job logs with `logging` goes to its log, too."""

from __future__ import annotations

import logging

from ..context import running


class JobLog(logging.Handler):
    """Adds records that are made inside a job to the job's log."""

    def emit(self, record: logging.LogRecord) -> None:
        context = running()
        if context is None:
            return
        try:
            context.log(self.format(record))
        except Exception:
            self.handleError(record)


def install() -> None:
    """Adds the handler to the root logger, for records of INFO and above.

    A program that has not configured `logging` has the level INFO then, and still sees warnings on stderr.
    """
    root = logging.getLogger()
    if not root.handlers:
        if logging.lastResort is not None:
            root.addHandler(logging.lastResort)
        if root.level == logging.WARNING:
            root.setLevel(logging.INFO)
    handler = JobLog(logging.INFO)
    handler.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))
    root.addHandler(handler)
