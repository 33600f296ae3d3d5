"""Tidegate: workflows of jobs, and rate limits, from Python.

``@job`` makes a function a job, ``@workflow`` makes a graph of them, and the command ``tidegate-worker module`` runs
them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._connect import connect, using
from ._jobs import AsyncJob, Job, job
from ._workflows import Template, Workflow, workflow
from .context import Child, Context, current
from .errors import (
    Busy,
    Conflict,
    DefinitionError,
    Forbidden,
    GivenBack,
    GraphError,
    IdempotencyMismatch,
    InvalidParam,
    InvalidRequest,
    JobError,
    LeaseLost,
    LimitWarning,
    NonRetryable,
    NotFound,
    NotTidegate,
    Problem,
    RemoteError,
    Retry,
    ServerUnavailable,
    Throttled,
    TidegateError,
    TooLarge,
    Unauthorized,
    WorkflowNotDone,
)

if TYPE_CHECKING:
    from ._run import Progress, Run
    from .client import AsyncClient, Client
    from .limits import LimitExceeded, concurrency, limit, limited

__version__ = "0.1.0"

__all__ = [
    "AsyncClient",
    "AsyncJob",
    "Busy",
    "Child",
    "Client",
    "Conflict",
    "Context",
    "DefinitionError",
    "Forbidden",
    "GivenBack",
    "GraphError",
    "IdempotencyMismatch",
    "InvalidParam",
    "InvalidRequest",
    "Job",
    "JobError",
    "LeaseLost",
    "LimitExceeded",
    "LimitWarning",
    "NonRetryable",
    "NotFound",
    "NotTidegate",
    "Problem",
    "Progress",
    "RemoteError",
    "Retry",
    "Run",
    "ServerUnavailable",
    "Template",
    "Throttled",
    "TidegateError",
    "TooLarge",
    "Unauthorized",
    "Workflow",
    "WorkflowNotDone",
    "concurrency",
    "connect",
    "current",
    "job",
    "limit",
    "limited",
    "using",
    "workflow",
]

#: What a program may not need: it is imported when it is asked for, so that the package is quick to import.
_LATER = {
    "AsyncClient": "client",
    "Client": "client",
    "LimitExceeded": "limits",
    "Progress": "_run",
    "Run": "_run",
    "concurrency": "limits",
    "limit": "limits",
    "limited": "limits",
}


def __dir__() -> list[str]:
    return sorted({*__all__, "__version__"})


def __getattr__(name: str) -> Any:
    if (module := _LATER.get(name)) is None:
        raise AttributeError(f"module 'tidegate' has no attribute '{name}'")
    from importlib import import_module

    value = getattr(import_module(f".{module}", __name__), name)
    globals()[name] = value
    return value
