"""Values of Python as JSON: params, outputs and handles in them. The other way is `_decode`."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import math
import sys
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Set
from typing import Any, NamedTuple, TypeGuard, cast

from . import _pydantic  # pyright: ignore[reportPrivateUsage]
from .errors import InvalidParam

#: A part of an output in params: ``{"$output": job}``, with ``"path"`` for a part of it.
OUTPUT = "$output"
#: In params, an object that has one of these keys itself is ``{"$value": object}``. Outputs have no handles in them, so
#: they are sent as they are.
VALUE = "$value"

#: Deeper than this the server refuses JSON.
DEEPEST = 100


def invalid(path: str, what: str) -> InvalidParam:
    """The error of a value, by its path."""
    return InvalidParam(f"{path}: {what}")


def is_mapping(value: object) -> TypeGuard[Mapping[Any, Any]]:
    """Whether it is an object in JSON's sense."""
    return isinstance(value, Mapping)


def is_list(value: object) -> TypeGuard[list[Any]]:
    """Whether it is a list."""
    return isinstance(value, list)


class Reference:
    """A value that stands for an output that is not known yet."""

    __slots__ = ()

    def as_reference(self) -> dict[str, Any]:
        """The object that takes its place in JSON."""
        raise NotImplementedError


class _Encoding(NamedTuple):
    """How values are encoded: `seen` is called with each handle, and `escapes` says whether objects that look like a
    handle are escaped."""

    seen: Callable[[Reference], None] | None
    escapes: bool


_OUTPUT = _Encoding(None, escapes=False)


def encode(value: Any, path: str, seen: Callable[[Reference], None] | None = None) -> Any:
    """Returns params as JSON-able objects, of which :func:`resolve` makes the same values again.

    Dataclasses, pydantic models, named tuples, enums, dates, times, UUIDs, decimals, sets and bytes become what JSON
    has for them. ``seen`` is called for each handle in it; without ``seen``, handles are refused.

    Raises:
        InvalidParam: something in it has no place in JSON. The message names it by its path, which begins with
        ``path``.
    """
    return _encoded(value, path, _Encoding(seen, escapes=True), 0)


def encode_output(value: Any, path: str) -> Any:
    """Returns what a job returned as JSON-able objects. No key in it has a meaning, so all of them stay.

    Raises:
        InvalidParam: something in it has no place in JSON.
    """
    return _encoded(value, path, _OUTPUT, 0)


def _encoded(value: Any, path: str, how: _Encoding, depth: int) -> Any:
    if value is None or value is True or value is False:
        return value
    kind: Any = type(value)  # pyright: ignore[reportUnknownVariableType]
    if kind is str or kind is int:
        return value
    if depth > DEEPEST:
        raise invalid(path, f"it is nested more than {DEEPEST} levels deep, or contains itself")
    if kind is float:
        if math.isfinite(value):
            return value
        raise invalid(path, f"{value} is not a number in JSON. Use None")
    if kind is list or kind is tuple:
        return _listed(value, path, how, depth)
    if isinstance(value, Reference):
        if how.seen is None:
            raise invalid(path, "the output of a job is known only when the job has run, so it cannot be used here")
        how.seen(value)
        return value.as_reference()
    if is_mapping(value):
        return _object(value, path, how, depth)
    return _special(value, path, how, depth)


def _object(value: Mapping[Any, Any], path: str, how: _Encoding, depth: int) -> dict[str, Any]:
    encoded: dict[str, Any] = {}
    for key, item in value.items():
        name = key.value if isinstance(key, enum.Enum) else key
        if not isinstance(name, str):
            raise invalid(path, f"the key {key!r} is of type {type(key).__name__}. Keys in JSON are str")
        encoded[str.__str__(name)] = _encoded(item, f"{path}.{name}", how, depth + 1)
    if how.escapes and (OUTPUT in encoded or VALUE in encoded):
        return {VALUE: encoded}
    return encoded


def _special(value: Any, path: str, how: _Encoding, depth: int) -> Any:
    if isinstance(value, enum.Enum):
        return _encoded(value.value, path, how, depth + 1)
    if not isinstance(value, type):
        if _pydantic.is_model(type(value)):
            return _encoded(_pydantic.dump(value, path), path, how, depth + 1)
        if dataclasses.is_dataclass(value):
            fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
            return _encoded(fields, path, how, depth + 1)
    if (text := _text(value)) is not None:
        return text
    # Subclasses of these, such as a name that is a str. What they make of themselves is not what they are.
    for plain in (str, int, float):
        if isinstance(value, plain):
            return _encoded(getattr(plain, f"__{plain.__name__}__")(value), path, how, depth + 1)
    if isinstance(value, (list, tuple, deque)):
        return _listed(cast("Iterable[Any]", value), path, how, depth)
    if isinstance(value, Set):
        from json import dumps

        # The order of a set differs between processes, and the same values must be the same definition.
        return sorted(_listed(value, path, how, depth), key=lambda item: dumps(item, sort_keys=True))  # pyright: ignore
    raise invalid(path, f"a value of type {type(value).__qualname__} is not JSON. {_advice(value)}")


def _text(value: Any) -> str | None:
    """The text that stands for a value in JSON, if it has one."""
    if isinstance(value, (datetime.datetime, datetime.date, datetime.time)):
        return value.isoformat()
    if isinstance(value, bytes):
        import base64

        return base64.b64encode(value).decode()
    # A program that has not imported these has no value of them.
    for module, name in (("uuid", "UUID"), ("decimal", "Decimal")):
        kind = getattr(sys.modules.get(module), name, None)
        if kind is not None and isinstance(value, kind):
            return str(value)
    return None


def _listed(value: Iterable[Any], path: str, how: _Encoding, depth: int) -> list[Any]:
    return [_encoded(item, f"{path}[{place}]", how, depth + 1) for place, item in enumerate(value)]


def _advice(value: Any) -> str:
    if isinstance(value, (bytearray, memoryview)):
        return "Use bytes"
    if hasattr(value, "get_secret_value"):
        return _pydantic.NO_SECRETS
    return "Use None, bool, int, float, str, list, dict, a dataclass or a pydantic model"


def resolve(value: Any, output: Callable[[str], Any]) -> Any:
    """Returns params as they were before :func:`encode`, with ``output(job)`` in the place of each handle.

    Raises:
        InvalidParam: the path of a reference leads to nothing.
    """
    if is_list(value):
        return [resolve(item, output) for item in value]
    if not is_mapping(value):
        return value
    items = value
    if _is_reference(items):
        name = items[OUTPUT]
        found, path = output(name), f"the output of job '{name}'"
        for step in items.get("path", ()):
            try:
                found = found[step]
            except (LookupError, TypeError):
                raise invalid(path, f"has nothing at {step!r}") from None
            path += f"[{step!r}]"
        return found
    if len(items) == 1 and is_mapping(inner := items.get(VALUE)) and (OUTPUT in inner or VALUE in inner):
        items = inner
    return {key: resolve(item, output) for key, item in items.items()}


def _is_reference(items: Mapping[Any, Any]) -> bool:
    """Whether it stands for an output. Definitions that others wrote may have such a key for something else."""
    path = items.get("path", [])
    return (
        isinstance(items.get(OUTPUT), str)
        and items.keys() <= {OUTPUT, "path"}
        and is_list(path)
        and all(isinstance(step, (str, int)) for step in path)
    )
