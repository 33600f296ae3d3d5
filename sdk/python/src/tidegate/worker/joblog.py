"""What a job logs with `logging` goes to its log, and to the terminal of the worker."""

from __future__ import annotations

import contextlib
import json
import logging
import sys
import time
from typing import TextIO, cast

from ..context import running

# The levels of the option --log-level.
LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


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


class Terminal(logging.Handler):
    """Writes records as lines with the name of the job, or as JSON objects with `as_json`."""

    def __init__(self, level: int, *, as_json: bool) -> None:
        super().__init__(level)
        self._as_json = as_json
        self._out: TextIO | None = sys.stdout if as_json else sys.stderr

    def filter(self, record: logging.LogRecord) -> bool:
        """Passes all records of jobs. Records outside of jobs pass from a warning on, as without this handler."""
        return running() is not None or record.levelno >= logging.WARNING

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = self.format(record)
        except Exception:
            self.handleError(record)
            return
        # A program may have been started without an output, and its reader may have gone: jobs go on.
        with contextlib.suppress(OSError, ValueError, AttributeError):
            cast("TextIO", self._out).write(line + "\n")
            cast("TextIO", self._out).flush()

    def format(self, record: logging.LogRecord) -> str:
        context, text = running(), super().format(record)
        job = context.job if context is not None else ""
        if not self._as_json:
            clock = time.strftime("%H:%M:%S", time.localtime(record.created))
            return f"{clock} {record.levelname} {f'{job}: ' if job else ''}{text}"
        at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z"
        fields = {"at": at, "event": "log", "level": record.levelname, "logger": record.name, "text": text}
        if context is not None:
            fields |= {"job": job, "workflow_id": context.workflow_id}
        return json.dumps(fields)


def install(level: str, *, as_json: bool, log_jobs: bool) -> None:
    """Adds what writes records of `level` and above to the terminal (`off`: nothing, as is), unless the program has
    configured `logging` itself; and, with `log_jobs`, what adds those of INFO and above to the logs of jobs."""
    root = logging.getLogger()
    wanted = LEVELS.get(level)
    if not root.handlers:
        if wanted is not None:
            root.addHandler(Terminal(wanted, as_json=as_json))
        if root.level == logging.WARNING:
            root.setLevel(min(logging.INFO, wanted or logging.INFO))
    if log_jobs:
        handler = JobLog(logging.INFO)
        handler.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))
        root.addHandler(handler)
