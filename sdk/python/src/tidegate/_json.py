"""JSON as it is sent."""

from __future__ import annotations

import json
from typing import Any

from .errors import InvalidParam

#: As many digits of a whole number as Python reads. Numbers of the server may have more.
MOST_DIGITS = 4300

_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


class LongNumber:
    """Stands for a whole number that has more digits than Python reads."""

    __slots__ = ("digits",)

    def __init__(self, digits: int) -> None:
        self.digits = digits

    def __str__(self) -> str:
        return f"a whole number of {self.digits} digits, and Python reads {MOST_DIGITS}"


def decode(data: bytes | str) -> tuple[Any, bool]:
    """Reads JSON. Returns the value, and whether a `LongNumber` is in it. Raises ValueError or RecursionError."""
    try:
        return json.loads(data), False
    except (json.JSONDecodeError, UnicodeDecodeError):
        raise
    except ValueError:
        return json.loads(data, parse_int=_whole), True


def _whole(text: str) -> int | LongNumber:
    digits = len(text.lstrip("-"))
    return int(text) if digits <= MOST_DIGITS else LongNumber(digits)


def long_number(value: Any) -> LongNumber | None:
    """Returns a number in a value that Python does not read."""
    left: list[Any] = [value]
    while left:
        one = left.pop()
        if isinstance(one, LongNumber):
            return one
        if isinstance(one, dict):
            left += one.values()  # pyright: ignore[reportUnknownArgumentType, reportUnknownMemberType]
        elif isinstance(one, list):
            left += one  # pyright: ignore[reportUnknownArgumentType]
    return None


def encode(value: Any) -> bytes:
    """Returns a value as JSON. Raises `InvalidParam`, with the path of the value that is none."""
    try:
        return _encode(value).encode("utf-8")
    except (TypeError, ValueError, RecursionError):
        mistake = _find(value, "")
        raise InvalidParam(mistake or "the value is nested too deeply, or in itself") from None


def _find(value: Any, path: str, depth: int = 0) -> str | None:
    """Returns what is wrong with a value, or with the first wrong value inside."""
    where = f"{path.lstrip('.')}: " if path else ""
    if value is None or isinstance(value, (bool, int)):
        return None
    if isinstance(value, str):
        return None if _is_text(value) else f"{where}a text with half of a surrogate pair is not JSON. Leave that out"
    if isinstance(value, float):
        return None if abs(value) < float("inf") else f"{where}{value} is not JSON. Use None"
    if depth > 100:
        return f"{where}nested more than 100 levels deep"
    if isinstance(value, dict):
        for key, item in value.items():  # pyright: ignore[reportUnknownVariableType]
            mistake = _find_key(key, where) or _find(item, f"{path}.{key}", depth + 1)
            if mistake:
                return mistake
        return None
    if isinstance(value, (list, tuple)):
        for index, item in enumerate(value):  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
            mistake = _find(item, f"{path}[{index}]", depth + 1)
            if mistake:
                return mistake
        return None
    return f"{where}a value of {type(value).__name__} is not JSON. Use None, bool, int, float, str, list or dict"


def _find_key(key: Any, where: str) -> str | None:
    if isinstance(key, str):
        return None if _is_text(key) else f"{where}a key with half of a surrogate pair is not JSON. Leave that out"
    if key is None or isinstance(key, (bool, int, float)):
        return None
    return f"{where}a key of {type(key).__name__} is not JSON. Use str"


def _is_text(value: str) -> bool:
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
