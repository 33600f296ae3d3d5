"""The output of a worker for people: a line for each job, one for each second with many jobs, a table at the end."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import select
import sys
import time
from collections.abc import Sequence
from typing import Any, TextIO

from .attempt_histogram import AttemptHistogram

# Most jobs of a second that get a line each. More jobs are shown by one line with their number.
_MANY = 50
_MARKS = {"succeeded": "✓", "failed": "✗", "lost": "-", "given_back": "↩", "throttled": "…"}
_COLOURS = {"succeeded": "32", "failed": "31", "lost": "33", "given_back": "33", "throttled": "33"}
_WORKFLOW = 12
# How long a reader of the output may hold the worker up, in milliseconds.
_WRITE_TIMEOUT_MS = 500


class Console:
    """Writes lines for people, or one JSON object a line with `as_json`."""

    def __init__(self, *, as_json: bool = False, out: TextIO | None = None, colours: bool | None = None) -> None:
        self._json = as_json
        # A program that was started without an output has none.
        self._out: TextIO = out or sys.stdout or pathlib.Path(os.devnull).open("w")  # noqa: SIM115
        self._colours = (self._out.isatty() if colours is None else colours) and not as_json
        self._second = 0
        self._shown = 0
        self._max_lines = _MANY
        self._ended = 0
        self._bad = 0
        self._left_out = 0
        self._writable = _writable(self._out)
        encoding = (getattr(self._out, "encoding", None) or "ascii").lower()
        self._marks = _MARKS if "utf" in encoding else dict.fromkeys(_MARKS, "*")

    def log(self, text: str, **fields: Any) -> None:
        """Writes an event of the worker itself. A part of the text may be from any program at the server's address."""
        text = _clean(" ".join(text.split()))
        if self._json:
            self._write({"at": _rfc3339(time.time()), "event": "worker", "text": text, **fields})
        else:
            self._print(f"{_clock(time.time())} {text}")

    def fail(self, text: str) -> None:
        """Writes the reason why the worker ends, in one line on stderr."""
        text = _clean(" ".join(text.split()))
        if self._json:
            self._write({"at": _rfc3339(time.time()), "event": "error", "text": text})
        else:
            with contextlib.suppress(OSError, ValueError, AttributeError):
                sys.stderr.write(f"tidegate-worker: {text}\n")
                sys.stderr.flush()

    def jobs(self, lines: Sequence[list[Any]], ended: int, bad: int) -> None:
        """Jobs have ended: `ended` of them, of which `bad` did not succeed, and lines of some."""
        self.tick()
        self._ended += ended
        self._bad += bad
        for line in lines:
            if self._shown >= (self._max_lines if line[1] == "succeeded" else 2 * _MANY):
                continue
            self._shown += 1
            self._job(*line)

    def tick(self) -> None:
        """Ends the second when it is over."""
        now = int(time.time())
        if now == self._second:
            return
        hidden = self._ended - self._shown
        if hidden > 0:
            bad = f", {self._bad:,} of them did not succeed" if self._bad else ""
            text = f"{self._ended:,} jobs in this second{bad}"
            if self._json:
                self._write({"at": _rfc3339(time.time()), "event": "jobs", "ended": self._ended, "shown": self._shown})
            else:
                self._print(f"{_clock(time.time())} {self._coloured(text, '2')}")
        # While there are many, the lines of the next second would only be the first ones of it.
        self._max_lines = 0 if self._ended > _MANY else _MANY
        self._second = now
        self._shown = self._ended = self._bad = 0

    def summary(self, figures: AttemptHistogram) -> None:
        """The table at the end."""
        self._second = 0
        self.tick()
        rows = [
            (
                handler,
                figures.count(handler, "succeeded"),
                figures.count(handler, "failed"),
                figures.count(handler) - figures.count(handler, "succeeded", "failed"),
                figures.percentile(handler, 0.5),
                figures.percentile(handler, 0.99),
            )
            for handler in figures.handlers()
        ]
        if self._json:
            for handler, good, bad, other, middle, high in rows:
                self._write(
                    {
                        "at": _rfc3339(time.time()),
                        "event": "summary",
                        "handler": handler,
                        "succeeded": good,
                        "failed": bad,
                        "other": other,
                        "p50_ms": round(middle * 1000, 3),
                        "p99_ms": round(high * 1000, 3),
                    }
                )
            return
        if not rows:
            return
        width = max(len("handler"), *(len(row[0]) for row in rows))
        self._print(f"\n{'handler':<{width}}  succeeded   failed    other       p50       p99")
        for handler, good, bad, other, middle, high in rows:
            failed = self._coloured(f"{bad:>8,}", "31") if bad else f"{bad:>8,}"
            self._print(
                f"{handler:<{width}}  {good:>9,} {failed} {other:>8,} {duration(middle):>9} {duration(high):>9}"
            )

    def close(self) -> None:
        """Drops what cannot be written: at the end of the process, that would be an error with a trace."""
        try:
            self._out.flush()
        except (OSError, ValueError):
            with contextlib.suppress(OSError, ValueError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), self._out.fileno())

    def _job(
        self, at: float, outcome: str, job: str, handler: str, seconds: float, workflow: str, problem: str
    ) -> None:
        if self._json:
            fields: dict[str, Any] = {
                "at": _rfc3339(at),
                "event": "job",
                "outcome": outcome,
                "job": job,
                "handler": handler,
                "ms": round(seconds * 1000, 3),
                "workflow_id": workflow,
            }
            if problem:
                fields["problem"] = problem
            self._write(fields)
            return
        mark = self._coloured(self._marks.get(outcome, "?"), _COLOURS.get(outcome, "0"))
        if self._marks is not _MARKS:
            mark = outcome
        # A handler says more than a name only where they differ: by default it is the module and the same name.
        name = _clean(job if handler.rpartition(".")[2] in (job, job.partition("-")[0]) else f"{job} ({handler})")
        tail = self._coloured(f"  {_clean(problem)}", "31") if problem else ""
        self._print(
            f"{_clock(at)} {mark} {name:<32} {duration(seconds):>9}  {self._coloured(workflow[:_WORKFLOW], '2')}{tail}"
        )

    def _coloured(self, text: str, colour: str) -> str:
        return f"\x1b[{colour}m{text}\x1b[0m" if self._colours else text

    def _write(self, fields: dict[str, Any]) -> None:
        self._print(json.dumps(fields, ensure_ascii=False).translate(_ESCAPES))

    def _print(self, text: str) -> None:
        # Signals and processes that end must not wait for a slow reader. After one pause, lines are dropped until the
        # reader goes on.
        if self._writable is not None and not self._writable.poll(0 if self._left_out else _WRITE_TIMEOUT_MS):
            self._left_out += 1
            return
        if self._left_out:
            left_out, self._left_out = self._left_out, 0
            self.log(f"{left_out:,} lines were left out here: no reader took them")
        try:
            self._out.write(text + "\n")
            self._out.flush()
        except (OSError, ValueError):
            # The output has no reader any more. Jobs go on.
            return


def _writable(out: TextIO) -> select.poll | None:
    """Returns a poller that says whether the output takes a line; `None` if it always does."""
    try:
        writable = select.poll()
        writable.register(out.fileno(), select.POLLOUT)
    except (OSError, ValueError, AttributeError):
        return None
    return writable


def duration(seconds: float) -> str:
    """Returns a time for people, with three digits."""
    if seconds < 0.9995e-3:
        return f"{seconds * 1e6:.0f} us"
    if seconds < 0.9995:
        return f"{seconds * 1000:.3g} ms"
    return f"{seconds:.3g} s" if seconds < 99.95 else f"{seconds:,.0f} s"


def _clock(at: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(at))


def _rfc3339(at: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at)) + f".{int(at % 1 * 1000):03d}Z"


# JSON leaves these as they are, and terminals and readers of lines act on them.
_ESCAPES = {code: f"\\u{code:04x}" for code in (*range(0x7F, 0xA0), 0x2028, 0x2029)}


def _clean(text: str) -> str:
    """Names and errors may have any characters: a terminal must not act on them."""
    return "".join(character if character.isprintable() else "?" for character in text)
