"""How an attempt ended, as the server wants to hear it."""

from __future__ import annotations

import json
import pathlib
import traceback
from collections.abc import Callable
from typing import Any

from .._span import span
from ..context import Context
from ..errors import GivenBack, NonRetryable, Retry, Throttled, TidegateError, deciding
from .notes import cut

# The server's bound for an output.
MAX_OUTPUT = 1024 * 1024
_MAX_TEXT = 16 * 1024
_SDK = str(pathlib.Path(__file__).parent.parent)


class TimedOut(TidegateError):
    """The attempt took longer than the timeout of its job."""


class Ending:
    """The end of an attempt: its outcome, and the report in JSON. `problem` says in one line what went wrong."""

    __slots__ = ("outcome", "problem", "report")

    def __init__(self, outcome: str, report: bytes, problem: str = "") -> None:
        self.outcome = outcome
        self.report = report
        self.problem = problem


def succeeded(lease: str, handler: str, output: Any) -> Ending:
    """The job returned `output`. When that cannot be sent, the attempt has failed, and another one would not help."""
    if output is None:
        return Ending("succeeded", b'{"lease":"%s","outcome":"succeeded"}' % lease.encode())
    try:
        encoded = _encode(output).encode()
    except (TypeError, ValueError, RecursionError, MemoryError) as error:
        # UnicodeEncodeError is a ValueError: half of a surrogate pair is not UTF-8.
        return failed(lease, NonRetryable(f"the output of job '{handler}' is not JSON: {error}"))
    if len(encoded) > MAX_OUTPUT:
        size = f"{len(encoded):,} bytes as JSON, and at most {MAX_OUTPUT:,} are kept"
        return failed(
            lease, NonRetryable(f"the output of job '{handler}' has {size}. Store it elsewhere and return its place")
        )
    return Ending("succeeded", b'{"lease":"%s","outcome":"succeeded","output":%s}' % (lease.encode(), encoded))


def raised(lease: str, error: BaseException) -> Ending:
    """The job raised `error`, or a group of errors."""
    decided = deciding(error)
    try:
        if isinstance(decided, GivenBack):
            return given_back(lease, None if decided.pause is None else span(decided.pause))
        if isinstance(decided, Throttled):
            report = {"lease": lease, "outcome": "throttled", "retry_after": span(decided.retry_after)}
            return Ending("throttled", _encode(report).encode(), _text(decided))
        return failed(lease, decided)
    except TypeError as wrong:
        # A time span that is none.
        return failed(lease, NonRetryable(str(wrong)))


def interrupted(claimed: Any, context: Context, *, late: bool) -> Ending | None:
    """The end of an attempt that was cancelled, whatever it returned or raised: that may be half of the work.

    `None` if the attempt was not cancelled. `late`: its time is over; a job that held the interpreter could not be
    cancelled in time.
    """
    if late:
        context.cancel("timed_out")
    if not context.cancelled:
        return None
    if context.reason == "timed_out":
        return failed(claimed["lease"], TimedOut(f"the attempt took longer than {claimed['timeout_ms']} ms"))
    return given_back(claimed["lease"])


def not_begun(lease: str) -> Ending:
    """The job was taken and never started: it is ready again in its place, and costs nothing."""
    return Ending("not_begun", _encode({"lease": lease, "outcome": "not_begun"}).encode())


def crashed(lease: str, code: int, *, alone: bool) -> Ending:
    """The process that ran the job has ended with this code, the negative number of a signal if one ended it. `alone`:
    it was a new one, and ran this job only."""
    how = {"signal": -code} if code < 0 else {"exit": code}
    return Ending("crashed", _encode({"lease": lease, "outcome": "crashed", **how, "alone": alone}).encode())


def given_back(lease: str, pause: str | None = None) -> Ending:
    """The job was not run to its end."""
    report = {"lease": lease, "outcome": "given_back"}
    if pause is not None:
        report["pause"] = pause
    return Ending("given_back", _encode(report).encode())


def failed(lease: str, error: BaseException) -> Ending:
    """The attempt failed with this error."""
    kind, message = type(error).__name__, _text(error)
    report: dict[str, Any] = {"lease": lease, "outcome": "failed"}
    if isinstance(error, NonRetryable):
        report["retry"] = "never"
    elif isinstance(error, Retry) and error.after is not None:
        report["retry_after"] = span(error.after)
    report["error"] = {"kind": cut(kind, 200), "message": cut(message, _MAX_TEXT)}
    trace = _trace(error)
    if trace:
        report["error"]["trace"] = trace
    first = message.strip().partition("\n")[0]
    return Ending("failed", _encode(report).encode(), f"{kind}: {cut(first, 200)}" if first else kind)


def _text(error: BaseException) -> str:
    """Returns what the error says. Making that is code of the program, too: a thread must not end with it, nor the job
    run without end."""
    try:
        return str(error)
    except BaseException as wrong:
        return f"(making the text of this error raised {type(wrong).__name__})"


def _encode(value: Any) -> str:
    return _encoder(value)


_encoder: Callable[[Any], str] = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


def _trace(error: BaseException) -> str:
    """Returns the trace without the frames of this package. The end of a long one is kept, where the error is."""
    if error.__traceback__ is None:
        return ""
    shown = traceback.TracebackException.from_exception(error)
    seen: list[traceback.TracebackException] = [shown]
    for one in seen:
        one.stack = traceback.StackSummary.from_list(
            [frame for frame in one.stack if not frame.filename.startswith(_SDK)]
        )
        seen.extend(other for other in (one.__cause__, one.__context__) if other is not None)
    if not shown.stack and len(seen) == 1:
        return ""
    text = "".join(shown.format())
    encoded = text.encode("utf-8", "replace")
    if len(encoded) <= _MAX_TEXT:
        return encoded.decode()
    return "…\n" + encoded[-(_MAX_TEXT - 4) :].decode("utf-8", "ignore")
