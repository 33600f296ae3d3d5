"""A child process of the worker, as its parent sees it."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
from typing import Any, NamedTuple

from .leases import HeldLease, LeaseTable
from .settings import Settings

# How long a child may take to end after its grace, in seconds. Then it is killed.
KILL_AFTER = 3.0


class ChildMessage(NamedTuple):
    """A message of a child; `message` is `None` if the child has ended."""

    child: Child
    message: dict[str, Any] | None


class Child:
    """A running process. Its messages are put into `events`."""

    def __init__(self, place: int, settings: Settings, events: queue.SimpleQueue[Any]) -> None:
        self.place = place
        self.began = time.monotonic()
        #: The only job that it is to run, if it was started for one.
        self.alone: Any = settings.alone
        # Whether it has that job.
        self.has_taken = False
        # Whether one of its jobs goes on long after its timeout.
        self.hangs = False
        self._due = self.began + settings.lease / 3
        self.ready = False
        self.retiring = False
        self.running = 0
        self.files: list[str] = []
        # When it is killed if it has not ended.
        self.kill_at: float | None = None
        file = LeaseTable.file(settings.concurrency)
        parent_end, child_end = socket.socketpair()
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tidegate.worker.child", str(child_end.fileno()), str(file)],
                stdin=subprocess.DEVNULL,
                pass_fds=(child_end.fileno(), file),
                # Ctrl-C is for the parent, which stops its children gracefully.
                start_new_session=True,
            )
            self._table = LeaseTable(file, settings.concurrency)
        finally:
            child_end.close()
            os.close(file)
        self._socket = parent_end
        self._unsent = bytearray()
        self._events = events
        self.send_line(settings.encode())
        reader = threading.Thread(target=self._read, name="tidegate-child", daemon=True)
        reader.start()
        threading.Thread(target=self._wait, args=(reader,), name="tidegate-end", daemon=True).start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def leases(self) -> list[HeldLease]:
        """Returns the leases that it holds, or held when it ended."""
        if self.alone is not None and not self.has_taken:
            return [HeldLease(self.alone["lease"], self._due, begun=False)]
        return self._table.read()

    def stop(self, grace: float | None) -> None:
        """Makes the child take no more jobs and end within `grace` seconds, or when its jobs have ended."""
        self.retiring = True
        self.send({"stop": grace})

    def leave(self, lease: str, grace: float) -> None:
        """Makes the child take no more jobs and end without the job of this lease: when its other jobs have ended, or,
        if that job holds them up, within `grace` seconds."""
        self.retiring = self.hangs = True
        self.kill_at = time.monotonic() + grace + KILL_AFTER
        self.send({"hangs": lease, "stop": grace})

    def send(self, message: dict[str, Any]) -> None:
        self.send_line(json.dumps(message).encode() + b"\n")

    def send_line(self, data: bytes) -> None:
        self._unsent += data
        self.flush()

    def flush(self) -> None:
        """Sends what it can take now: a job may block it for minutes, and the others must not wait for that."""
        while self._unsent:
            try:
                del self._unsent[: self._socket.send(self._unsent, socket.MSG_DONTWAIT)]
            except OSError:
                # It is full, or it has ended and its end is noticed elsewhere.
                return

    def kill(self) -> None:
        """Ends it at once, with the processes that its jobs have started."""
        if self._process.poll() is None:
            with contextlib.suppress(OSError):
                os.killpg(self.pid, signal.SIGKILL)

    def how_it_ended(self) -> str:
        code = self._process.wait()
        if code < 0:
            try:
                return f"was ended by {signal.Signals(-code).name}"
            except ValueError:
                return f"was ended by signal {-code}"
        return f"ended with exit code {code}"

    @property
    def code(self) -> int:
        return self._process.wait()

    def _read(self) -> None:
        with contextlib.suppress(OSError, ValueError), self._socket.makefile("rb") as reader:
            for line in reader:
                self._events.put(ChildMessage(self, json.loads(line)))

    def _wait(self, reader: threading.Thread) -> None:
        if hasattr(os, "waitid"):
            with contextlib.suppress(OSError):
                # Until `wait` has returned, no other process gets this number. The jobs run in other processes soon,
                # so processes that they have started must end now, however the child ended.
                os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
                os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()
        # The last messages are still to be read. Processes of its jobs may hold the connection open, so the wait has an
        # end.
        reader.join(1.0)
        self._events.put(ChildMessage(self, None))
