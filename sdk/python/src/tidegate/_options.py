"""Options of jobs and workflows, checked where they are written: their names, and the kinds of their values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

from ._span import span
from ._values import is_mapping
from .errors import DefinitionError, InvalidParam


def check(what: str, given: object, known: Iterable[str]) -> None:
    """Checks options of ``what``: ``@job``, for example.

    Raises:
        DefinitionError: there is no such option, or its value is of another kind. The message has what is possible.
    """
    if not isinstance(given, Mapping):
        raise DefinitionError(f"{what}: options are a dict, and {given!r} is none")
    for name, value in cast("Mapping[str, Any]", given).items():
        if name not in known:
            raise DefinitionError(f"{what} has no option '{name}'. It has {', '.join(sorted(known))}")
        if value is None or (kind := _KINDS.get(name)) is None:
            continue
        try:
            kind(value)
        except InvalidParam as error:
            raise DefinitionError(f"{what}, {name}: {error}") from None


def _text(value: object) -> None:
    if not isinstance(value, str):
        raise _wrong(value, "a text")


def _key(value: object) -> None:
    if not isinstance(value, str) or not value:
        raise _wrong(value, "a text of at least one character")


def _number(most: float) -> Callable[[object], None]:
    expected = "a whole number from 0" + (f" to {most}" if most < float("inf") else " on")

    def number(value: object) -> None:
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
            raise _wrong(value, expected)

    return number


def _one_of(*words: str) -> Callable[[object], None]:
    def word(value: object) -> None:
        if value not in words:
            raise _wrong(value, f"one of {', '.join(words)}")

    return word


def _mapping(value: object) -> None:
    if not isinstance(value, Mapping):
        raise _wrong(value, "a dict")


def _texts(value: object) -> None:
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise _wrong(value, "a list of texts")


def _limits(value: object) -> None:
    if isinstance(value, str) or is_mapping(value) or not isinstance(value, Iterable):
        raise _wrong(value, 'a list such as [limit("vendor", tenant="$.tenant")]')


def _retention(value: Any) -> None:
    if value == "forever":
        return
    try:
        span(value)
    except InvalidParam as error:
        raise InvalidParam(f"{error}, or 'forever'") from None


def _wrong(value: object, expected: str) -> InvalidParam:
    return InvalidParam(f"expected {expected}, got {value!r}")


_KINDS: dict[str, Callable[[Any], object]] = {
    **dict.fromkeys(("handler", "queue", "name"), _text),
    "key": _key,
    **dict.fromkeys(("backoff", "backoff_max", "timeout", "wait"), span),
    **dict.fromkeys(("globals", "params"), _mapping),
    "retries": _number(65_534),
    "max_lost": _number(65_534),
    "priority": _number(255),
    "rule": _one_of("all_success", "all_done", "any_success", "any_failed", "none_failed"),
    "limits": _limits,
    "tags": _texts,
    "on_failure": _one_of("continue", "fail_fast"),
    "retention": _retention,
    "start": _one_of("now", "manual"),
}
