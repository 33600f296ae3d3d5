"""Makes values of Python from JSON, as the annotations of functions and classes say."""

from __future__ import annotations

import collections
import collections.abc
import dataclasses
import datetime
import enum
import sys
import threading
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, cast

from . import _pydantic  # pyright: ignore[reportPrivateUsage]
from ._values import encode_output, invalid
from .errors import InvalidParam

_Decoder = Callable[[Any, str], Any]


def decode(value: Any, wanted: Any, path: str) -> Any:
    """Returns JSON as a value of the annotation ``wanted``. For an annotation that is not known here, JSON is returned
    as it is. Of a union, the first member that fits is taken.

    Raises:
        InvalidParam: the value does not fit the annotation.
    """
    decoder = _decoder(wanted)
    if decoder is None:
        return value
    try:
        return decoder(value, path)
    except InvalidParam:
        raise
    except (TypeError, ValueError, ArithmeticError, RecursionError) as error:
        # A number that is too large for its type, an item that cannot be in a set, a value that is too deep.
        raise invalid(path, " ".join(str(error).split())[:_SHOWN]) from None


#: The most characters of a value, or of what its type says of it, in an error.
_SHOWN = 300
_decoders: dict[Any, _Decoder | None] = {}
# Placeholders of decoders that a thread is making, for types that contain themselves. Other threads wait for that
# thread: a placeholder is of no use to them.
_unfinished: dict[Any, _Decoder] = {}
_finding = threading.RLock()


def _decoder(wanted: Any) -> _Decoder | None:
    """The decoder of an annotation; None when JSON stays as it is. It is made once for each annotation."""
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
            found = _decoders[wanted] = _find(wanted)
        finally:
            del _unfinished[wanted]
        return found


#: The class that is made for each collection in annotations.
_COLLECTIONS: dict[Any, Any] = {
    **{kind: kind for kind in (list, tuple, set, frozenset, collections.deque)},
    collections.abc.Sequence: list,
    collections.abc.MutableSequence: list,
    collections.abc.Iterable: list,
    collections.abc.Collection: list,
    collections.abc.Set: set,
    collections.abc.MutableSet: set,
}
_WRAPPERS = [
    getattr(typing, name)
    for name in ("Annotated", "Final", "Required", "NotRequired", "ReadOnly")
    if hasattr(typing, name)
]


def _find(wanted: Any) -> _Decoder | None:
    origin, parts = typing.get_origin(wanted), typing.get_args(wanted)
    if origin in _WRAPPERS:
        return _decoder(parts[0])
    if origin is None:
        # A NewType, and an alias of Python 3.12.
        behind = getattr(wanted, "__supertype__", None) or (
            wanted.__value__ if type(wanted).__name__ == "TypeAliasType" else None
        )
        if behind is not None:
            return _decoder(behind)
    if origin is typing.Literal:
        return _literal(parts)
    if origin is typing.Union or origin is types.UnionType:
        return _union(parts)
    if origin in _COLLECTIONS:
        return _collection(_COLLECTIONS[origin], parts)
    if isinstance(origin, type) and issubclass(origin, Mapping) and len(parts) == 2:
        return _mapping(parts[0], parts[1])
    kind: Any = cast("Any", origin) or wanted
    if not isinstance(kind, type):
        return None
    return _plain(kind) or _class(kind) or _composed(kind, _variables(kind, parts))


def _plain(wanted: Any) -> _Decoder | None:
    if wanted is type(None):
        return lambda value, path: _checked(value, type(None), path)
    if wanted in _CHECKS:
        return _CHECKS[wanted]
    if wanted in _COLLECTIONS:
        return _collection(_COLLECTIONS[wanted], ())
    return None


def _class(wanted: Any) -> _Decoder | None:
    if enum.Enum in wanted.__mro__:
        return _enum(wanted)
    if wanted in _TIME_EXAMPLES:
        return lambda value, path: _moment(wanted, _checked(value, str, path), path)
    if bytes in wanted.__mro__:
        return lambda value, path: wanted(_construct(_bytes, _checked(value, str, path), path))
    # Compared by name: their modules are not imported for programs that do not use them.
    named = (wanted.__module__, wanted.__name__)
    if named == ("uuid", "UUID"):
        return lambda value, path: _construct(wanted, _checked(value, str, path), path)
    if named == ("decimal", "Decimal"):
        return lambda value, path: _decimal(wanted, value, path)
    bases: tuple[Any, ...] = (str, int, float, list, dict)
    for base in bases:
        # A dict with a default needs that before its items, and a typed one has fields.
        if (
            not issubclass(wanted, (base,))
            or issubclass(wanted, collections.defaultdict)
            or typing.is_typeddict(wanted)
        ):
            continue
        check, make = _decoder(base) or _any, cast("Callable[[Any], Any]", wanted)
        return lambda value, path: _construct(make, check(value, path), path)
    return None


def _any(value: Any, _: str) -> Any:
    return value


def _composed(wanted: Any, variables: Mapping[Any, Any]) -> _Decoder | None:
    """Decoders of classes with fields. `variables` are the arguments of a generic one."""
    if _pydantic.is_model(wanted):
        return lambda value, path: _construct(lambda given: _pydantic.validate(wanted, given), value, path)
    if typing.is_typeddict(wanted):
        return _typed_dict(_fields(wanted, variables))
    names: tuple[str, ...] | None = getattr(wanted, "_fields", None)
    if names is not None and tuple in wanted.__mro__:
        known = _fields(wanted, variables)
        fixed = _each_by_its_own([known.get(name) for name in names])
        return lambda value, path: wanted(*fixed(value, path))
    if dataclasses.is_dataclass(wanted):
        return _dataclass(wanted, _fields(wanted, variables))
    return None


def _fields(wanted: Any, variables: Mapping[Any, Any]) -> dict[str, _Decoder | None]:
    return {name: _decoder(_substitute(annotation, variables)) for name, annotation in hints(wanted).items()}


def _variables(wanted: Any, parts: tuple[Any, ...]) -> dict[Any, Any]:
    """The types that replace the type variables of a generic class and of its base classes."""
    known: dict[Any, Any] = dict(zip(getattr(wanted, "__parameters__", ()), parts, strict=False))
    for base in getattr(wanted, "__orig_bases__", ()):
        origin = typing.get_origin(base)
        if origin is not None and origin is not typing.Generic:
            known |= _variables(origin, tuple(_substitute(part, known) for part in typing.get_args(base)))
    return known


def _substitute(annotation: Any, variables: Mapping[Any, Any]) -> Any:
    """The annotation with its type variables replaced."""
    if not variables:
        return annotation
    if isinstance(annotation, typing.TypeVar):
        return variables.get(annotation, annotation)
    inner = getattr(annotation, "__parameters__", ())
    if not inner or typing.get_origin(annotation) is None:
        return annotation
    return annotation[tuple(variables.get(one, one) for one in inner)]


#: Examples of texts of these types, for errors.
_TIME_EXAMPLES: dict[type, str] = {
    datetime.date: "a date such as 2026-11-21",
    datetime.time: "a time such as 09:30:00",
    datetime.datetime: "a date and time such as 2026-11-21T09:30:00Z",
}


def _moment(wanted: Any, text: str, path: str) -> Any:
    try:
        # Python 3.10 does not read the Z.
        return wanted.fromisoformat(text[:-1] + "+00:00" if text.endswith("Z") else text)
    except ValueError:
        raise invalid(path, f"expected {_TIME_EXAMPLES[wanted]}, got {text[:100]!r}") from None


def _bytes(text: str) -> bytes:
    import base64

    return base64.b64decode(text, validate=True)


def _decimal(wanted: Any, value: Any, path: str) -> Any:
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise _wrong_type(value, "a decimal number as text", path)
    try:
        return wanted(str(value))
    except ArithmeticError:
        raise invalid(path, f"expected a decimal number as text, got {str(value)[:100]!r}") from None


def _checked(value: Any, kind: type, path: str) -> Any:
    if not isinstance(value, kind):
        raise _wrong_type(
            value, "None" if kind is type(None) else f"{'an' if kind is int else 'a'} {kind.__name__}", path
        )
    return value


def _wrong_type(value: Any, expected: str, path: str) -> InvalidParam:
    return invalid(path, f"expected {expected}, got {'None' if value is None else type(value).__name__}")


def _construct(make: Callable[[Any], Any], value: Any, path: str) -> Any:
    try:
        return make(value)
    except (ValueError, TypeError) as error:
        # A model's error has lines for each of its fields.
        raise invalid(path, " ".join(str(error).split())) from None


def _float(value: Any, path: str) -> Any:
    # JSON of other languages has no point in whole numbers.
    if isinstance(value, float) or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    raise _wrong_type(value, "a float", path)


def _check(kind: type) -> _Decoder:
    return lambda value, path: _checked(value, kind, path)


#: Decoders that check values and return them as they are.
_CHECKS: dict[Any, _Decoder] = {float: _float, **{kind: _check(kind) for kind in (str, int, bool, dict)}}
#: The type of values that need no check by a decoder.
_UNCHECKED: dict[Any, Any] = {check: kind for kind, check in _CHECKS.items()}


def _key(value: Any) -> str:
    # Here: the package is quick to import.
    from json import dumps

    return dumps(value, sort_keys=True)


def _enum(wanted: Any) -> _Decoder:
    # By their JSON: a member may have a tuple as its value.
    members: dict[str, Any] = {}
    for one in wanted:
        try:
            members.setdefault(_key(encode_output(one.value, "")), one)
        except InvalidParam:
            continue

    def member(value: Any, path: str) -> Any:
        found = members.get(_key(value))
        return _construct(wanted, value, path) if found is None else found

    return member


def _literal(parts: tuple[Any, ...]) -> _Decoder:
    values = {_key(encode_output(part, "")): part for part in parts}

    def one(value: Any, path: str) -> Any:
        try:
            return values[_key(value)]
        except KeyError:
            raise invalid(path, f"expected one of {', '.join(map(repr, parts))}, got {repr(value)[:_SHOWN]}") from None

    return one


def _union(parts: tuple[Any, ...]) -> _Decoder | None:
    members = [part for part in parts if part is not type(None)]
    decoders = [_decoder(member) for member in members]
    # Numbers are taken as they are where the union names their type.
    exact = {member for member in members if member in (bool, int, float)}

    def one(value: Any, path: str) -> Any:
        if value is None and len(members) < len(parts):
            return None
        if type(value) in exact:
            return value
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


def _collection(origin: Callable[[Any], Any], parts: tuple[Any, ...]) -> _Decoder:
    if origin is tuple and parts and parts[-1] is not Ellipsis:
        fixed = _each_by_its_own([_decoder(part) for part in parts])
        return lambda value, path: tuple(fixed(value, path))
    decoder = _decoder(parts[0]) if parts else None
    if decoder is None:
        if origin is list:
            return lambda value, path: _checked(value, list, path)
        return lambda value, path: origin(_checked(value, list, path))
    each, unchecked = decoder, _UNCHECKED.get(decoder)
    return lambda value, path: origin(
        [
            item if type(item) is unchecked else each(item, f"{path}[{place}]")
            for place, item in enumerate(_checked(value, list, path))
        ]
    )


def _each_by_its_own(decoders: list[_Decoder | None]) -> Callable[[Any, str], list[Any]]:
    """Makes a list of as many items as there are decoders, each by its own."""

    def fixed(value: Any, path: str) -> list[Any]:
        if len(_checked(value, list, path)) != len(decoders):
            raise invalid(path, f"expected {len(decoders)} items, got {len(value)}")
        return [
            item if decoder is None else decoder(item, f"{path}[{place}]")
            for place, (item, decoder) in enumerate(zip(value, decoders, strict=True))
        ]

    return fixed


def _mapping(key: Any, item: Any) -> _Decoder:
    names = None if key is str else _decoder(key)
    decoder = _decoder(item)

    def made(value: Any, path: str) -> Any:
        given = _checked(value, dict, path)
        if names is None and decoder is None:
            return given
        return {
            name if names is None else names(name, path): part if decoder is None else decoder(part, f"{path}.{name}")
            for name, part in given.items()
        }

    return made


def _typed_dict(fields: Mapping[str, _Decoder | None]) -> _Decoder:
    def made(value: Any, path: str) -> Any:
        return {
            key: item if (decoder := fields.get(key)) is None else decoder(item, f"{path}.{key}")
            for key, item in _checked(value, dict, path).items()
        }

    return made


def _dataclass(wanted: Any, known: Mapping[str, _Decoder | None]) -> _Decoder:
    is_init = {field.name: field.init for field in dataclasses.fields(wanted)}
    unchecked = {name: _UNCHECKED.get(decoder) for name, decoder in known.items()}
    has_computed_fields = not all(is_init.values())

    def made(value: Any, path: str) -> Any:
        given = _checked(value, dict, path)
        unknown = [key for key in given if key not in is_init]
        if unknown:
            raise invalid(path, f"{wanted.__name__} has no field {unknown[0]!r}")
        decoded = {
            key: item
            if type(item) is unchecked.get(key) or (decoder := known.get(key)) is None
            else decoder(item, f"{path}.{key}")
            for key, item in given.items()
        }
        if not has_computed_fields:
            return _construct(lambda fields: wanted(**fields), decoded, path)
        first = {key: item for key, item in decoded.items() if is_init[key]}
        one = _construct(lambda fields: wanted(**fields), first, path)
        # Fields that the class computes itself, and that may have changed since.
        for key in decoded.keys() - first.keys():
            object.__setattr__(one, key, decoded[key])
        return one

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
