"""JSON as it is sent."""

from __future__ import annotations

import json
from typing import Any

from .errors import InvalidParam

_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


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
