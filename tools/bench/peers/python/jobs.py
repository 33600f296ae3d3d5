"""The jobs of `measure.py`, for the worker of the SDK."""

import time

from tidegate import job


@job(handler="noop")
def noop() -> None:
    return None


@job(handler="ten")
def ten() -> None:
    time.sleep(0.01)


@job(handler="moment")
def moment() -> float:
    return time.time()
