"""What can go wrong, for callers of the server and for jobs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast


class TidegateError(Exception):
    """The base class of all errors of this package."""


class ServerUnavailable(TidegateError, ConnectionError):
    """No answer came from the server.

    `sent` says whether the request had left: then it may have been carried out.
    """

    def __init__(self, message: str, *, sent: bool = False) -> None:
        super().__init__(message)
        self.sent = sent


class NotTidegate(TidegateError):
    """The answer is not one that a Tidegate server gives: there is another program at the address, or one between."""


class InvalidParam(TidegateError, TypeError):
    """A value that was to be sent is not JSON, or is not what the function takes."""


class Problem(TidegateError):
    """The server refused a request. Programs can rely on `status` and `code`.

    `path` says where in the request the mistake is, and `retry_after` in how many seconds it may be tried again.
    `reason` is the one of a lost lease. `fields` has the whole answer (RFC 9457).
    """

    def __init__(self, fields: Mapping[str, Any], *, status: int | None = None, hint: str = "") -> None:
        self.fields: dict[str, Any] = dict(fields)
        self.status: int = _number(fields.get("status")) or status or 0
        self.code = _text(fields.get("code"))
        self.detail = _text(fields.get("detail")) or _text(fields.get("title"))
        self.path: str | None = _text(fields.get("path")) or None
        self.reason: str | None = _text(fields.get("reason")) or None
        self.request_id: str | None = _text(fields.get("request_id")) or None
        self.workflow_id: str | None = _text(fields.get("workflow_id")) or None
        self.retry_after: float | None = _number(fields.get("retry_after"))
        self.nothing_done: bool = fields.get("nothing_done") is True
        self.hint = hint
        where = f"{self.path}: " if self.path else ""
        super().__init__(f"{where}{self.detail} ({self.code}, {self.status}){'. ' + hint if hint else ''}")

    def __reduce__(self) -> tuple[Any, ...]:
        return _problem, (type(self), self.fields, self.status, self.hint)

    @staticmethod
    def from_fields(fields: Mapping[str, Any], *, status: int | None = None, hint: str = "") -> Problem:
        """Makes the problem of the class that fits its code or its status."""
        code, number = fields.get("code"), fields.get("status")
        status = number if isinstance(number, int) else status
        kind = _BY_CODE.get(str(code)) or _BY_STATUS.get(status or 0, Problem)
        return kind(fields, status=status, hint=hint)


class Unauthorized(Problem):
    """401: the token is missing or unknown."""


class Forbidden(Problem):
    """403: the role of the token is too small."""


class NotFound(Problem):
    """404: there is no such workflow, job, queue or override."""


class Conflict(Problem):
    """409: the current state does not allow this."""


class LeaseLost(Conflict):
    """409 `lease_lost`: the job is no longer this worker's. `reason` says why."""


class IdempotencyMismatch(Conflict):
    """409 `idempotency_mismatch`: the key belongs to another definition, of the workflow `workflow_id`."""


class TooLarge(Problem):
    """413: the request or the answer is too large."""


class InvalidRequest(Problem):
    """400 or 422: `path` says where the mistake is."""


class Busy(Problem):
    """503: try again after `retry_after` seconds."""


class JobError(TidegateError):
    """A job failed, and its result was asked for."""

    def __init__(self, message: str, *, job: str = "", kind: str = "", workflow_id: str = "", trace: str = "") -> None:
        super().__init__(message)
        self.job = job
        self.kind = kind
        self.workflow_id = workflow_id
        self.trace = trace


class RemoteError(TidegateError):
    """The trace of an error where it was raised, in the process of a worker: the cause of a :class:`JobError`."""

    def __str__(self) -> str:
        return f"in the worker:\n{super().__str__()}"


class NonRetryable(TidegateError):
    """Raised in a job: it has failed, and another attempt would not help."""


class Retry(TidegateError):
    """Raised in a job: this attempt has failed, and the next one is to begin `after` this time span."""

    def __init__(self, message: str = "", *, after: Any = None) -> None:
        super().__init__(message)
        self.after = after


class Throttled(TidegateError):
    """Raised in a job: the service behind a rate limit of the job refused it. The attempt does not count.

    `retry_after` is a time span or a number of seconds.
    """

    def __init__(self, retry_after: Any, message: str = "") -> None:
        super().__init__(message or f"throttled for {retry_after}")
        self.retry_after = retry_after

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.retry_after, str(self))


class GivenBack(BaseException):
    """Raised in a job: it goes back to its queue, and this does not count as an attempt.

    It is no `Exception`, so that an `except Exception` of a job does not stop it.
    """

    def __init__(self, pause: Any = None) -> None:
        super().__init__("given back")
        self.pause = pause


class DefinitionError(TidegateError):
    """A job or a workflow is not what it should be."""


class GraphError(DefinitionError):
    """The graph of a workflow cannot be built."""


class WorkflowNotDone(TidegateError, TimeoutError):
    """A workflow is not over after the time that its caller would wait."""


class LimitWarning(UserWarning):
    """A rate limit of a run limits nothing: its server has no rule with the domain. The run was started all the same.

    A process warns once for each server and domain. A test makes it an error with
    ``warnings.simplefilter("error", LimitWarning)``; then each start raises it.
    """


def deciding(error: BaseException) -> BaseException:
    """The error that decides how an attempt ends: of a group (as of a task group), one of the errors in it.

    A failure wins over what does not count as an attempt: first :class:`NonRetryable`, then other failures, for which
    the group itself stands, then :class:`Retry`, :class:`Throttled` and :class:`GivenBack`. Of several that are alike,
    the one with the longest pause.
    """
    leaves = _leaves(error)
    if not leaves:
        return error
    for kind in (NonRetryable, None, Retry, Throttled, GivenBack):
        found = [one for one in leaves if (isinstance(one, kind) if kind else not isinstance(one, _CONTROL))]
        if found:
            return error if kind is None else max(found, key=_pause)
    return error


def _leaves(error: BaseException) -> list[BaseException]:
    """The errors of a group and of the groups in it, without those of tasks that were cancelled for them."""
    inner: Any = getattr(error, "exceptions", None)
    # Before Python 3.11, groups come from a package.
    if not isinstance(inner, tuple) or not any(kind.__name__ == "BaseExceptionGroup" for kind in type(error).__mro__):
        return []
    found: list[BaseException] = []
    for one in cast("tuple[BaseException, ...]", inner):
        found += _leaves(one) or [one]
    return [one for one in found if type(one).__name__ != "CancelledError"]


def _pause(error: BaseException) -> float:
    for name in ("after", "retry_after", "pause"):
        value = getattr(error, name, None)
        if value is not None:
            # Here: time spans have errors of this module.
            from ._span import seconds

            try:
                return seconds(value)
            except (TypeError, ValueError):
                # The wrong value is reported with the attempt.
                return float("inf")
    return 0.0


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _number(value: object) -> Any:
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _problem(kind: type[Problem], fields: dict[str, Any], status: int, hint: str) -> Problem:
    return kind(fields, status=status, hint=hint)


#: What a job raises to say how its attempt ends.
_CONTROL = (NonRetryable, Retry, Throttled, GivenBack)
_BY_CODE: dict[str, type[Problem]] = {"lease_lost": LeaseLost, "idempotency_mismatch": IdempotencyMismatch}
_BY_STATUS: dict[int, type[Problem]] = {
    400: InvalidRequest,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    413: TooLarge,
    422: InvalidRequest,
    503: Busy,
}
