"""A process that a job forks is no worker: signals end it, and it ends with its copy of the job."""

from __future__ import annotations

import os
import signal
import sys
import traceback

_is_fork = False


def watch() -> None:
    """Called once in the process that runs jobs, when it has set its signal handlers."""
    os.register_at_fork(after_in_child=_begin)


def leave(error: BaseException | None) -> None:
    """Ends the process if a job has forked it; `error` is what the job raised there."""
    if not _is_fork:
        return
    code = 0
    if isinstance(error, SystemExit):
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
    elif error is not None:
        traceback.print_exception(error)
        code = 1
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code & 0xFF)


def _begin() -> None:
    global _is_fork
    _is_fork = True
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
