"""Values of Python as JSON and back: params, outputs and handles in them."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import math
import sys
import threading
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, TypeGuard

from .errors import InvalidParam

#: A part of an output in params: ``{"$output": job}``, with ``"path"`` for a part of it.
OUTPUT = "$output"
#: Keeps an object apart that has one of these keys itself: ``{"$value": object}``.
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
    """What stands for an output that is not known yet."""

    __slots__ = ()

    def as_reference(self) -> dict[str, Any]:
        """The object that takes its place in JSON."""
        raise NotImplementedError


def encode(value: Any, path: str, seen: Callable[[Reference], None] | None = None, depth: int = 0) -> Any:
    """Returns ``value`` as JSON-able objects.

    Dataclasses, pydantic models, enums, dates, times and UUIDs become what JSON has for them. ``seen`` is called for
    each handle in it; without ``seen``, handles are refused.

    Raises:
        InvalidParam: something in it has no place in JSON. The message names it by its path, which begins with
        ``path``.
    """
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
        return _listed(value, path, seen, depth)
    if isinstance(value, Reference):
        if seen is None:
            raise invalid(path, "the output of a job is known only when the job has run, so it cannot be used here")
        seen(value)
        return value.as_reference()
    if is_mapping(value):
        return _object(value, path, seen, depth)
    return _special(value, path, seen, depth)


def _object(
    value: Mapping[Any, Any], path: str, seen: Callable[[Reference], None] | None, depth: int
) -> dict[str, Any]:
    encoded: dict[str, Any] = {}
    for key, item in value.items():
        if not isinstance(key, str):
            raise invalid(path, f"the key {key!r} is of type {type(key).__name__}. Keys in JSON are str")
        encoded[str(key)] = encode(item, f"{path}.{key}", seen, depth + 1)
    if OUTPUT in encoded or VALUE in encoded:
        return {VALUE: encoded}
    return encoded


def _special(value: Any, path: str, seen: Callable[[Reference], None] | None, depth: int) -> Any:
    if isinstance(value, enum.Enum):
        return encode(value.value, path, seen, depth + 1)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        return encode(fields, path, seen, depth + 1)
    dump = getattr(value, "model_dump", None)
    if callable(dump) and not isinstance(value, type):
        return encode(dump(mode="json"), path, seen, depth + 1)
    if isinstance(value, (datetime.datetime, datetime.date, datetime.time)):
        return value.isoformat()
    if isinstance(value, _uuid()):
        return str(value)
    # Subclasses of these, such as IntEnum's members or named tuples.
    for plain in (str, int, float):
        if isinstance(value, plain):
            return encode(plain(value), path, seen, depth + 1)
    if isinstance(value, (list, tuple)):
        return _listed(value, path, seen, depth)
    raise invalid(path, f"a value of type {type(value).__qualname__} is not JSON. {_advice(value)}")


def _listed(value: Any, path: str, seen: Callable[[Reference], None] | None, depth: int) -> list[Any]:
    return [encode(item, f"{path}[{place}]", seen, depth + 1) for place, item in enumerate(value)]


def _advice(value: Any) -> str:
    if isinstance(value, (bytes, bytearray, memoryview)):
        return "Store the bytes elsewhere and pass their name, or pass text (base64)"
    if isinstance(value, (set, frozenset)):
        return "Use a list"
    return "Use None, bool, int, float, str, list, dict, a dataclass or a pydantic model"


def resolve(value: Any, output: Callable[[str], Any]) -> Any:
    """Returns ``value`` with ``output(job)`` in the place of each ``{"$output": job}``.

    Raises:
        InvalidParam: the path of a reference leads to nothing.
    """
    if is_list(value):
        return [resolve(item, output) for item in value]
    if not is_mapping(value):
        return value
    items = value
    if OUTPUT in items:
        name = items[OUTPUT]
        found, path = output(name), f"the output of job '{name}'"
        for step in items.get("path", ()):
            try:
                found = found[step]
            except (LookupError, TypeError):
                raise invalid(path, f"has nothing at {step!r}") from None
            path += f"[{step!r}]"
        return found
    if VALUE in items and len(items) == 1:
        items = items[VALUE]
    return {key: resolve(item, output) for key, item in items.items()}


def decode(value: Any, wanted: Any, path: str) -> Any:
    """Returns JSON as what the annotation ``wanted`` asks for. What it does not know stays as it is.

    Raises:
        InvalidParam: the value does not fit the annotation.
    """
    decoder = _decoder(wanted)
    return value if decoder is None else decoder(value, path)


_Decoder = Callable[[Any, str], Any]
_decoders: dict[Any, _Decoder | None] = {}
# Those that one thread is about to find. Others wait for it: what stands for a type that contains itself is of no use
# before.
_unfinished: dict[Any, _Decoder] = {}
_finding = threading.RLock()


def _decoder(wanted: Any) -> _Decoder | None:
    """What makes values for an annotation; None when they stay as they are. It is found once for each annotation."""
    try:
        if wanted in _decoders:
            return _decoders[wanted]
    except TypeError:  # An annotation that cannot be hashed.
        return _find(wanted)
    with _finding:
        if wanted in _decoders:
            return _decoders[wanted]
        if wanted in _unfinished:
            # A type that contains itself.
            return _unfinished[wanted]
        _unfinished[wanted] = lambda value, path: decode(value, wanted, path)
        try:
            _decoders[wanted] = _find(wanted)
        finally:
            del _unfinished[wanted]
        return _decoders[wanted]


def _find(wanted: Any) -> _Decoder | None:
    origin, parts = typing.get_origin(wanted), typing.get_args(wanted)
    if origin is typing.Annotated:
        return _decoder(parts[0])
    if origin is typing.Union or origin is types.UnionType:
        return _union(parts)
    if origin in (list, set, frozenset, tuple):
        return _collection(origin, parts)
    if origin is not None and isinstance(origin, type) and issubclass(origin, Mapping) and len(parts) == 2:
        return _mapping(parts[1])
    if not isinstance(wanted, type):
        return None
    return _class(wanted)


def _class(wanted: Any) -> _Decoder | None:
    if wanted in (tuple, set, frozenset):
        return _collection(wanted, ())
    if issubclass(wanted, enum.Enum):
        return lambda value, path: _made(wanted, value, path)
    if wanted in (datetime.datetime, datetime.date, datetime.time):
        return lambda value, path: _moment(wanted, _checked(value, str, path), path)
    if wanted is _uuid():
        return lambda value, path: _made(wanted, _checked(value, str, path), path)
    if hasattr(wanted, "__dataclass_fields__"):
        return _dataclass(wanted)
    validate = getattr(wanted, "model_validate", None)
    if callable(validate):
        return lambda value, path: _made(validate, value, path)
    return None


def _uuid() -> type:
    # Few programs need it, and in Python 3.10 it imports subprocess.
    from uuid import UUID

    return UUID


#: What texts of these types look like.
_SUCH: dict[type, str] = {
    datetime.date: "a date such as 2026-11-21",
    datetime.time: "a time such as 09:30:00",
    datetime.datetime: "a date and time such as 2026-11-21T09:30:00Z",
}


def _moment(wanted: Any, text: str, path: str) -> Any:
    try:
        return wanted.fromisoformat(_utc(text))
    except ValueError:
        raise invalid(path, f"expected {_SUCH[wanted]}, got {text[:100]!r}") from None


def _utc(text: str) -> str:
    # Python 3.10 does not read the Z.
    return text[:-1] + "+00:00" if text.endswith("Z") else text


def _checked(value: Any, kind: type, path: str) -> Any:
    if not isinstance(value, kind):
        raise invalid(path, f"expected a {kind.__name__}, got {type(value).__name__}")
    return value


def _made(make: Callable[[Any], Any], value: Any, path: str) -> Any:
    try:
        return make(value)
    except (ValueError, TypeError) as error:
        # A model's error has lines for each of its fields.
        raise invalid(path, " ".join(str(error).split())) from None


def _union(parts: tuple[Any, ...]) -> _Decoder | None:
    members = [part for part in parts if part is not type(None)]
    if len(members) == len(parts) and all(_decoder(member) is None for member in members):
        return None
    decoders = [_decoder(member) for member in members]

    def one(value: Any, path: str) -> Any:
        if value is None and len(members) < len(parts):
            return None
        failure: InvalidParam | None = None
        for member, decoder in zip(members, decoders, strict=True):
            if decoder is None:
                if not isinstance(member, type) or isinstance(value, member):
                    return value
                continue
            try:
                return decoder(value, path)
            except InvalidParam as error:
                failure = failure or error
        if failure is None:
            return value
        raise failure

    return one if any(decoder is not None for decoder in decoders) else None


def _collection(origin: Callable[[Any], Any], parts: tuple[Any, ...]) -> _Decoder | None:
    if origin is tuple and parts and parts[-1] is not Ellipsis:
        decoders = [_decoder(part) for part in parts]

        def fixed(value: Any, path: str) -> Any:
            if len(_checked(value, list, path)) != len(decoders):
                raise invalid(path, f"expected {len(decoders)} items, got {len(value)}")
            return tuple(
                item if decoder is None else decoder(item, f"{path}[{place}]")
                for place, (item, decoder) in enumerate(zip(value, decoders, strict=True))
            )

        return fixed
    item_decoder = _decoder(parts[0]) if parts else None
    if item_decoder is None:
        return None if origin is list else lambda value, path: origin(_checked(value, list, path))
    decoder = item_decoder
    return lambda value, path: origin(
        [decoder(item, f"{path}[{place}]") for place, item in enumerate(_checked(value, list, path))]
    )


def _mapping(item: Any) -> _Decoder | None:
    decoder = _decoder(item)
    if decoder is None:
        return None
    return lambda value, path: {
        key: decoder(part, f"{path}.{key}") for key, part in _checked(value, dict, path).items()
    }


def _dataclass(wanted: type) -> _Decoder:
    known = hints(wanted)
    fields = {field.name: _decoder(known.get(field.name, Any)) for field in dataclasses.fields(wanted) if field.init}

    def made(value: Any, path: str) -> Any:
        given = _checked(value, dict, path)
        unknown = [key for key in given if key not in fields]
        if unknown:
            raise invalid(path, f"{wanted.__name__} has no field {unknown[0]!r}")
        decoded = {
            key: item if (decoder := fields[key]) is None else decoder(item, f"{path}.{key}")
            for key, item in given.items()
        }
        return _made(lambda fields: wanted(**fields), decoded, path)

    return made


def hints(target: Any) -> dict[str, Any]:
    """The annotations of a function or class as types. One that cannot be looked up (a name that exists for type
    checkers only) is left out."""
    try:
        return typing.get_type_hints(target, include_extras=True)
    except Exception:  # Whatever code an annotation runs.
        found: dict[str, Any] = {}
        space: dict[str, Any] = dict(vars(sys.modules.get(target.__module__, typing)))
        given: dict[str, Any] = getattr(target, "__annotations__", {})
        for name, annotation in given.items():
            try:
                found[name] = eval(annotation, space) if isinstance(annotation, str) else annotation
            except Exception:
                continue
        return found
