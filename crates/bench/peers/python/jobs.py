"""The jobs of `measure.py`, for the worker of the SDK."""

import time

from tidegate import job


@job
def noop() -> None:
    return None


@job
def ten() -> None:
    time.sleep(0.01)


@job
def moment() -> float:
    return time.time()
