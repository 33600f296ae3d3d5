"""OpenTelemetry, when the program has it: the trace goes on from whoever creates a workflow to its jobs."""

from __future__ import annotations

import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from . import api

#: The global of a workflow that has the W3C headers of its creator's span.
KEY = "$trace"


def inject(definition: api.Definition) -> None:
    """Adds the current span to the globals of a workflow. It does nothing in a program that has not imported OpenTelemetry."""
    if "opentelemetry" not in sys.modules:
        return
    from opentelemetry import propagate  # pyright: ignore

    carrier: dict[str, str] = {}
    propagate.inject(carrier)
    if carrier:
        definition["globals"] = {**(definition.get("globals") or {}), KEY: carrier}


@contextmanager
def span(claimed: api.ClaimedJob) -> Generator[None]:
    """The span of an attempt, as a child of the creator's. It does nothing in a program that has not imported OpenTelemetry."""
    if "opentelemetry" not in sys.modules:
        yield
        return
    from opentelemetry import propagate, trace  # pyright: ignore

    carrier: Any = claimed["params"].get(KEY)
    parent = propagate.extract(cast("Mapping[str, str]", carrier)) if isinstance(carrier, Mapping) else None
    attributes: dict[str, Any] = {
        "messaging.system": "tidegate",
        "messaging.destination.name": claimed["queue"],
        "tidegate.workflow.id": claimed["workflow_id"],
        "tidegate.job": claimed["job"],
        "tidegate.attempt": claimed["attempt"],
    }
    tracer = trace.get_tracer("tidegate")
    with tracer.start_as_current_span(f"job {claimed['handler']}", parent, trace.SpanKind.CONSUMER, attributes):
        yield
