"""Time spans as the server reads them."""

from __future__ import annotations

import re
from datetime import timedelta

from .errors import InvalidParam

Span = str | int | float | timedelta
"""A time span: a text with units such as `"1h30m"`, a number of seconds, or a timedelta."""

_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)(us|ms|s|m|h|d)")
_WHOLE = re.compile(rf"(?:{_PART.pattern})+")


def span(value: Span) -> str:
    """Returns a time span with a unit, such as `"1500ms"` for 1.5 seconds. A text is returned as it is."""
    if isinstance(value, str):
        _parts(value)
        return value
    microseconds = round(seconds(value) * 1_000_000)
    if microseconds % 1000:
        return f"{microseconds}us"
    return f"{microseconds // 1000}ms"


def seconds(value: Span) -> float:
    """Returns a time span in seconds."""
    if isinstance(value, str):
        return sum(float(number) * _SECONDS[unit] for number, unit in _parts(value))
    if isinstance(value, timedelta):
        value = value.total_seconds()
    elif isinstance(value, bool) or not isinstance(value, (int, float)):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise _wrong(value)
    if not 0 <= value < float("inf"):
        raise _wrong(value)
    return float(value)


def _parts(text: str) -> list[tuple[str, str]]:
    if not _WHOLE.fullmatch(text):
        raise _wrong(text)
    return _PART.findall(text)


def _wrong(value: object) -> InvalidParam:
    expected = "expected seconds, a timedelta, or a text such as '30s' or '1h30m'"
    return InvalidParam(f"{value!r} is not a time span: {expected}")
