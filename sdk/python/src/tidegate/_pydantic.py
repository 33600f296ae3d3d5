"""Models of pydantic as JSON and back. The package does not need pydantic: a program that has models has it."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, cast

from .errors import InvalidParam

#: What pydantic writes in the place of a secret.
_MASK = "*" * 10
NO_SECRETS = (
    "All readers of the workflow would see a secret. Pass its name, and let the job look it up; "
    "or pass its value as text"
)


def is_model(kind: Any) -> bool:
    """Whether it is a model or a dataclass of pydantic (version 2)."""
    return "__pydantic_validator__" in vars(kind)


def dump(model: Any, path: str) -> Any:
    """A model as JSON-able objects, of which :func:`validate` makes an equal one.

    Raises:
        InvalidParam: pydantic cannot make JSON of it, or it has a secret in it.
    """
    adapter, by_name = _adapter(cast("Any", type(model)))
    try:
        # Without computed fields, which are no input of the model.
        dumped = adapter.dump_python(model, mode="json", round_trip=True, by_alias=not by_name)
    except Exception as error:  # Serializers of the program may raise anything.
        raise InvalidParam(f"{path}: {' '.join(str(error).split())}") from None
    if _has(dumped, _is_mask) and _has(adapter.dump_python(model, round_trip=True), _is_secret):
        raise InvalidParam(f"{path}: {type(model).__name__} has a secret in it. {NO_SECRETS}")
    return dumped


def validate(kind: Any, value: Any) -> Any:
    """The model that JSON stands for, by the names of its fields or by their aliases.

    Raises:
        ValueError: it does not fit the model.
    """
    from json import dumps

    adapter, by_name = _adapter(kind)
    # As JSON: a strict model takes a text for a date there.
    names = {"by_alias": True, "by_name": True} if by_name else {}
    return adapter.validate_json(dumps(value), **names)


@functools.lru_cache(maxsize=1024)
def _adapter(kind: Any) -> tuple[Any, bool]:
    """The adapter that reads and writes a model, and whether it accepts names and aliases (pydantic 2.11)."""
    import pydantic  # type: ignore[import-not-found,unused-ignore]  # pyright: ignore

    adapter: Any = cast("Any", pydantic).TypeAdapter(kind)
    return adapter, "by_name" in inspect.signature(adapter.validate_json).parameters


def _is_mask(value: object) -> bool:
    return value == _MASK


def _is_secret(value: object) -> bool:
    return hasattr(value, "get_secret_value")


def _has(value: Any, wanted: Callable[[object], bool]) -> bool:
    if isinstance(value, dict):
        return any(_has(item, wanted) for item in cast("Mapping[Any, Any]", value).values())
    if isinstance(value, (list, tuple, set, frozenset)):
        return any(_has(item, wanted) for item in cast("list[Any]", value))
    return wanted(value)
