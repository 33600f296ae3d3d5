"""OpenTelemetry, when the program has it: the trace of the code that creates a workflow goes on in its jobs, and in
their children."""

from __future__ import annotations

import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

from .errors import GivenBack, Throttled, deciding

if TYPE_CHECKING:
    from . import api

#: The global of a workflow that has the W3C headers of its creator's span.
KEY = "$trace"


def _is_used() -> bool:
    """Whether the program has imported the API of OpenTelemetry. A namespace alone may be that of another package."""
    return sys.modules.get("opentelemetry.trace") is not None


def inject(definition: api.Definition) -> None:
    """Adds the current span to the globals of a workflow. It does nothing in a program that has not imported
    OpenTelemetry."""
    if not _is_used():
        return
    from opentelemetry import propagate  # pyright: ignore

    carrier: dict[str, str] = {}
    propagate.inject(carrier)
    if carrier:
        definition["globals"] = {**(definition.get("globals") or {}), KEY: carrier}


def headers() -> dict[str, str]:
    """The W3C headers of a call that creates workflows: they say where its creator is in a trace. The server keeps that
    with a workflow whose definition does not say it, and the call has a span of the server there."""
    if not _is_used():
        return {}
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator  # pyright: ignore

    carrier: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(carrier)
    # A trace that cannot be sent must not keep the call from being made.
    return {name: value for name, value in carrier.items() if value.isascii() and value.isprintable()}


def inherited(params: Mapping[str, Any]) -> dict[str, Any]:
    """The global for a child of a job with these params. It is the same in each attempt of the job, so the child's
    definition is, too."""
    return {KEY: params[KEY]} if KEY in params else {}


@contextmanager
def span(claimed: api.ClaimedJob) -> Generator[None]:
    """The span of an attempt, as a child of the server's, or else of the creator's. It does nothing in a program that
    has not imported OpenTelemetry."""
    if not _is_used():
        yield
        return
    from opentelemetry import propagate, trace  # pyright: ignore

    attributes: dict[str, Any] = {
        "messaging.system": "tidegate",
        "messaging.destination.name": claimed["queue"],
        "tidegate.workflow.id": claimed["workflow_id"],
        "tidegate.job": claimed["job"],
        "tidegate.attempt": claimed["attempt"],
    }
    left = _carrier(claimed["params"])
    parent = propagate.extract(left)
    if traceparent := claimed.get("traceparent"):
        # Whatever the program uses elsewhere, this is W3C.
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator  # pyright: ignore

        parent = TraceContextTextMapPropagator().extract({**left, "traceparent": traceparent}, parent)
    tracer = trace.get_tracer("tidegate")
    returned: BaseException | None = None
    with tracer.start_as_current_span(f"job {claimed['handler']}", parent, trace.SpanKind.CONSUMER, attributes):
        try:
            yield
        except BaseException as error:
            # The attempt has not failed, so its span is no error.
            if not isinstance(deciding(error), (GivenBack, Throttled)):
                raise
            returned = error
    if returned is not None:
        raise returned


def _carrier(params: Mapping[str, Any]) -> dict[str, str]:
    """The headers of the code that created the workflow. Clients that can create workflows can put anything there."""
    left: Any = params.get(KEY)
    if not isinstance(left, Mapping):
        return {}
    return {name: value for name, value in cast("Mapping[str, object]", left).items() if isinstance(value, str)}
