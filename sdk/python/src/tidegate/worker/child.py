"""A process that runs jobs: `python -m tidegate.worker.child CONTROL TABLE`, with two files that its parent opened."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pathlib
import queue
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Mapping
from typing import Any

from .._connect import connect
from .._jobs import Base, load
from ..errors import TidegateError
from . import fork
from .engine import Engine
from .joblog import install
from .leases import LeaseTable
from .settings import Settings

# The claim of a worker names at most so many handlers and queues.
_MAX_HANDLERS, _MAX_QUEUES = 256, 100
# How long jobs have after `grace` to notice that they are not wanted, and the rest to be given back.
_LAST_WORDS = 3.0
# Without its parent, nobody extends the leases, so what has ended is reported at once.
_ORPHAN = 1.0


class Control:
    """The connection with the parent: lines of JSON."""

    def __init__(self, file: int) -> None:
        self._socket = socket.socket(fileno=file)
        self._reader = self._socket.makefile("rb")
        self._lock = threading.Lock()

    def read(self) -> bytes:
        """Returns the next line, or nothing when the parent is gone."""
        try:
            return self._reader.readline()
        except OSError:
            return b""

    def tell(self, message: dict[str, Any]) -> None:
        data = json.dumps(message).encode() + b"\n"
        with self._lock, contextlib.suppress(OSError):
            self._socket.sendall(data)


def main() -> int:
    for file in sys.argv[1:3]:
        os.set_inheritable(int(file), False)
    control = Control(int(sys.argv[1]))
    settings = Settings.decode(control.read())
    table = LeaseTable(int(sys.argv[2]), settings.concurrency)
    # Everything that ends the process comes through this queue; a signal handler can put to it at any moment.
    orders: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
    signal.signal(signal.SIGTERM, lambda number, frame: orders.put({"stop": settings.grace}))
    signal.signal(signal.SIGINT, lambda number, frame: None)
    fork.watch()
    connect(settings.server, token=settings.token, cacert=settings.cacert)
    try:
        jobs = _load(settings.target)
    except TidegateError as error:
        control.tell({"error": str(error)})
        return 2
    settings = _with_queues(settings, jobs)
    if settings.log_jobs:
        install()
    engine = Engine(settings, jobs, table, control.tell)
    engine.start()
    control.tell({"ready": {"handlers": sorted(jobs), "queues": list(settings.queues), "files": _files()}})
    threading.Thread(target=_listen, args=(control, engine, orders), name="tidegate-control", daemon=True).start()
    order = orders.get()
    engine.stop()
    if order is None:
        engine.wait(_ORPHAN)
        os._exit(1)
    is_done = engine.wait(order["stop"])
    if not is_done:
        engine.abandon(_LAST_WORDS)
    engine.end()
    if not is_done:
        # Threads that do not notice cannot be ended; the process can.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)
    # Python waits for threads that jobs have left behind, and some never end.
    threading.Thread(target=_leave, args=(_LAST_WORDS,), name="tidegate-end", daemon=True).start()
    return 0


def _leave(seconds: float) -> None:
    threading.Event().wait(seconds)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def _listen(control: Control, engine: Engine, orders: queue.SimpleQueue[dict[str, Any] | None]) -> None:
    while line := control.read():
        message = json.loads(line)
        if "lost" in message:
            engine.lose(message["lost"], message["reason"])
        elif "stop" in message:
            orders.put(message)
    orders.put(None)
    # The main thread may be busy with an earlier order.
    threading.Event().wait(2 * _ORPHAN)
    os._exit(1)


def _load(target: str) -> dict[str, Base[..., Any]]:
    try:
        jobs = load(target)
    except TidegateError:
        raise
    except BaseException as error:  # An app may even call exit() while it is imported.
        raise TidegateError(f"{target} cannot be imported: {_place(error)}") from None
    if len(jobs) > _MAX_HANDLERS:
        raise TidegateError(
            f"{target} has {len(jobs)} jobs, and a worker serves at most {_MAX_HANDLERS}: name some, as in module:jobs"
        )
    return jobs


def _place(error: BaseException) -> str:
    """Says what was raised, and where in the program."""
    text = " ".join(f"{type(error).__name__}: {error}".split())
    if isinstance(error, SyntaxError):
        return text
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith("<")]
    return f"{frames[-1].filename}:{frames[-1].lineno}: {text}" if frames else text


def _with_queues(settings: Settings, jobs: Mapping[str, Base[..., Any]]) -> Settings:
    names = settings.queues or tuple(sorted({job.queue for job in jobs.values()}))
    return dataclasses.replace(settings, queues=names[:_MAX_QUEUES])


def _files() -> list[str]:
    """Returns the files of the program: those below the working folder, without installed packages."""
    here = pathlib.Path.cwd()
    files = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
    return sorted(
        {file for file in files if file and here in pathlib.Path(file).parents and "site-packages" not in file}
    )


if __name__ == "__main__":
    sys.exit(main())
