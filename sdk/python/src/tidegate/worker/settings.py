"""What a worker was asked to do, as the parent sends it to its children."""

from __future__ import annotations

import dataclasses
import json
import time
from typing import Any

# Jobs that have not ended go back to their queues at most this time before the end of the grace, in seconds.
_RESERVE = 2.0


def reserve(grace: float) -> float:
    """The part of the grace in which jobs go back to their queues, in seconds."""
    return min(_RESERVE, grace / 2)


@dataclasses.dataclass(frozen=True)
class Settings:
    """The options of the command. `lease` and `grace` are in seconds; `token` is never shown."""

    target: str
    name: str
    server: str
    token: str | None = dataclasses.field(default=None, repr=False)
    cacert: str | None = None
    queues: tuple[str, ...] = ()
    concurrency: int = 16
    processes: int = 1
    lease: float = 30.0
    grace: float = 20.0
    log_jobs: bool = True
    #: The lowest level of records of `logging` that are shown on the terminal.
    log_level: str = "info"
    as_json: bool = False
    #: The only job of a process: it was claimed by another one, and may be what ended the processes that ran it.
    alone: Any = None
    #: When the worker started, by the clock that all processes of the machine share.
    started: float = dataclasses.field(default_factory=time.monotonic)

    def uptime(self) -> str:
        """Returns how long the worker has run, as the server wants to hear it: it may have drained an earlier worker of
        this name. A process that runs jobs says how long its parent has."""
        return f"{round((time.monotonic() - self.started) * 1000)}ms"

    def encode(self) -> bytes:
        """Returns the settings as one line of JSON."""
        return json.dumps(dataclasses.asdict(self)).encode() + b"\n"

    @staticmethod
    def decode(line: bytes) -> Settings:
        fields: dict[str, Any] = json.loads(line)
        fields["queues"] = tuple(fields["queues"])
        return Settings(**fields)
