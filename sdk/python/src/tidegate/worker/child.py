"""A process that runs jobs: `python -m tidegate.worker.child CONTROL TABLE`, with two files that its parent opened."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import os
import pathlib
import queue
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Iterable, Mapping
from typing import Any

from .._connect import connect
from .._jobs import Base
from .._load import load
from ..errors import TidegateError
from . import fork
from .engine import Engine
from .joblog import install
from .leases import LeaseTable
from .reload import places, working_folder
from .settings import Settings, reserve

# Bounds of the server: handlers and queues that the claim of a worker names.
_MAX_HANDLERS, _MAX_QUEUES = 256, 100
# Interval in seconds at which later orders are read while jobs end.
_POLL_SECONDS = 0.1
# The least time, in seconds, for jobs to notice that they are cancelled, and for the rest to go back to their queues.
_MIN_ABANDON = 1.0
# How long threads that jobs have started and not joined have to end by themselves, in seconds.
_THREADS_END = 3.0
# Seconds that a process without its parent has to report ended jobs: no process extends their leases any more.
_ORPHAN = 1.0


class NotLoaded(TidegateError):
    """The program cannot be used. A change of `files` may repair it."""

    def __init__(self, text: str, files: Iterable[str] = ()) -> None:
        super().__init__(text)
        self.files = files


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

    def send(self, message: dict[str, Any]) -> None:
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
        settings = _with_queues(settings, jobs)
    except TidegateError as error:
        files = error.files if isinstance(error, NotLoaded) else ()
        control.send({"error": str(error), "files": _files([*places(settings.target), *files])})
        return 2
    install(settings.log_level, as_json=settings.as_json, log_jobs=settings.log_jobs)
    engine = Engine(settings, jobs, table, control.send)
    engine.start()
    named = {job.queue for job in jobs.values()}
    unnamed = [queue for queue in settings.queues if queue not in named]
    ready = {"handlers": sorted(jobs), "queues": list(settings.queues), "unnamed": unnamed, "files": _files()}
    control.send({"ready": ready})
    threading.Thread(target=_listen, args=(control, engine, orders), name="tidegate-control", daemon=True).start()
    if settings.alone is not None:
        # Sent before the job begins, because the job may end the process at once.
        control.send({"taken": True})
        engine.begin(settings.alone)
        # It ends with this job.
        orders.put({"stop": None})
    order = orders.get()
    engine.stop()
    is_done, has_parent = _finish(engine, order, orders)
    if not has_parent:
        _leave_all()
    if not is_done:
        engine.abandon(max(reserve(settings.grace), _MIN_ABANDON))
    engine.end()
    if not is_done:
        # Threads that do not notice cannot be ended; the process can.
        _leave_all()
    # Python waits for threads that jobs have left behind, and some never end.
    threading.Thread(target=_leave, args=(_THREADS_END,), name="tidegate-end", daemon=True).start()
    return 0


def _finish(
    engine: Engine, order: dict[str, Any] | None, orders: queue.SimpleQueue[dict[str, Any] | None]
) -> tuple[bool, bool]:
    """Waits for the jobs that run. Returns whether they have ended, and whether there is a parent.

    A later order may leave them less time: a drain has no end, and a signal after it has one.
    """
    ends: float | None = None
    has_parent = True
    while True:
        time_left: float | None = _ORPHAN
        if order is not None:
            time_left = None if order["stop"] is None else order["stop"] - reserve(order["stop"])
        has_parent = has_parent and order is not None
        if time_left is not None:
            ends = min(ends or math.inf, time.monotonic() + time_left)
        while orders.empty():
            if engine.wait(_POLL_SECONDS if ends is None else max(min(ends - time.monotonic(), _POLL_SECONDS), 0.0)):
                return True, has_parent
            if ends is not None and ends <= time.monotonic():
                return False, has_parent
        order = orders.get()


def _leave(seconds: float) -> None:
    threading.Event().wait(seconds)
    _flush()
    os._exit(0)


def _leave_all() -> None:
    """Ends this process and those that its jobs have started: the jobs run elsewhere now, and not twice."""
    _flush()
    if os.getpgrp() == os.getpid():
        os.killpg(os.getpid(), signal.SIGKILL)
    os._exit(1)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        # They may be closed, or their disk full.
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()


def _listen(control: Control, engine: Engine, orders: queue.SimpleQueue[dict[str, Any] | None]) -> None:
    while line := control.read():
        message = json.loads(line)
        if "extended" in message:
            engine.extended(message)
        elif "lost" in message:
            engine.lose(message["lost"], message["reason"])
        elif "hangs" in message:
            order = {"stop": message["stop"]}
            if engine.leave(message["hangs"]):
                control.send({"finishes_jobs": True})
                order = {"stop": None}
            orders.put(order)
        elif "stop" in message:
            orders.put(message)
    orders.put(None)
    # The main thread may be busy with an earlier order.
    threading.Event().wait(2 * _ORPHAN)
    _leave_all()


def _load(target: str) -> dict[str, Base[..., Any]]:
    try:
        jobs = load(target)
    except TidegateError:
        raise
    except BaseException as error:  # An app may even call exit() while it is imported.
        raise NotLoaded(f"{target} cannot be imported: {_place(error)}", _files_of(error)) from None
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
    if len(names) > _MAX_QUEUES:
        whose = "--queues names" if settings.queues else f"the jobs of {settings.target} name"
        raise TidegateError(
            f"{whose} {len(names)} queues, and a worker serves at most {_MAX_QUEUES}: "
            "start several workers, and give each some of them with --queues"
        )
    return dataclasses.replace(settings, queues=names)


def _files_of(error: BaseException) -> list[str]:
    """Returns the files in which a program that cannot be imported may be repaired."""
    files = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
    if isinstance(error, SyntaxError) and error.filename:
        files.append(error.filename)
    if isinstance(error, ModuleNotFoundError) and error.name:
        files += places(error.name)
    here = working_folder()
    return [str(here / file) for file in files] if here else []


def _files(more: Iterable[str] = ()) -> list[str]:
    """Returns the files of the program: those below the working folder, without installed packages."""
    here = working_folder()
    if here is None:
        return []
    files = [*more, *(getattr(module, "__file__", None) for module in list(sys.modules.values()))]
    return sorted(
        {file for file in files if file and here in pathlib.Path(file).parents and "site-packages" not in file}
    )


if __name__ == "__main__":
    sys.exit(main())
