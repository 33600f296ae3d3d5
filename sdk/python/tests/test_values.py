"""Params and outputs as JSON, and back by the annotations of functions."""

from __future__ import annotations

import datetime
import enum
import json
import re
import threading
import time
import uuid
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Optional

import pytest

from tidegate import InvalidParam, _decode
from tidegate._decode import decode
from tidegate._values import encode, resolve


class Colour(enum.Enum):
    RED = "red"


class Pair(NamedTuple):
    left: int
    right: int


@dataclass
class Line:
    sku: str
    count: int = 1


@dataclass
class Order:
    id: uuid.UUID
    at: datetime.datetime
    lines: list[Line] = field(default_factory=list)
    colour: Optional[Colour] = None  # noqa: UP045
    more: dict[str, Line] | None = None


def test_what_goes_out_comes_back() -> None:
    at = datetime.datetime(2026, 11, 23, 12, tzinfo=datetime.timezone.utc)
    order = Order(uuid.UUID(int=7), at, [Line("a", 2)], Colour.RED, {"x": Line("b")})
    sent = json.loads(json.dumps(encode(order, "order")))
    assert decode(sent, Order, "order") == order
    assert decode([sent], list[Order], "orders") == [order]
    assert decode("2026-11-23T12:00:00Z", datetime.datetime, "at") == at


@pytest.mark.parametrize(
    ("value", "wanted", "expected"),
    [
        (3, int, 3),
        (None, Line | None, None),
        ({"sku": "a"}, Optional[Line], Line("a")),  # noqa: UP045 (users may write it so)
        ("text", Line | str, "text"),
        ([1, 2], tuple[int, int], (1, 2)),
        ([1, 2, 2], set[int], {1, 2}),
        ([[1, {"sku": "a"}]], list[tuple[int, Line]], [(1, Line("a"))]),
        ({"sku": "a"}, Any, {"sku": "a"}),
        ("red", Colour, Colour.RED),
    ],
)
def test_annotations_decide(value: Any, wanted: Any, expected: Any) -> None:
    assert decode(value, wanted, "it") == expected


@pytest.mark.parametrize(
    ("value", "path", "what"),
    [
        ({"a": [1, object()]}, "p.a[1]", "object is not JSON"),
        (float("nan"), "p", "not a number in JSON"),
        (bytearray(b"x"), "p", "Use bytes"),
        ({1, 2j}, "p[", "complex is not JSON"),
        ({1: 2}, "p", "Keys in JSON are str"),
    ],
)
def test_what_is_not_json_is_refused_with_its_path(value: Any, path: str, what: str) -> None:
    with pytest.raises(InvalidParam) as error:
        encode(value, "p")
    text = str(error.value)
    assert re.match(rf"{re.escape(path)}\d?]?: ", text) and what in text and "\n" not in text


def test_what_contains_itself_is_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(InvalidParam, match="contains itself"):
        encode(loop, "p")


@pytest.mark.parametrize(
    ("value", "wanted", "text"),
    [
        ({"sku": "a", "colour": 1}, Line, "Line has no field 'colour'"),
        ({}, Line, "sku"),
        ("blue", Colour, "blue"),
        ([1], tuple[int, int], "expected 2 items, got 1"),
        ("tomorrow", datetime.date, "^it: expected a date such as 2026-11-21, got 'tomorrow'$"),
        ("now", datetime.datetime, "expected a date and time such as 2026-11-21T09:30:00Z, got 'now'"),
        ("noon", datetime.time, "expected a time such as 09:30:00, got 'noon'"),
        ("x", list[Line], "expected a list, got str"),
        ([{"sku": "a"}, 3], list[Line], r"it\[1\]: expected a dict"),
    ],
)
def test_what_does_not_fit_is_refused(value: Any, wanted: Any, text: str) -> None:
    with pytest.raises(InvalidParam, match=text):
        decode(value, wanted, "it")


def test_pydantic_models() -> None:
    pydantic = pytest.importorskip("pydantic")

    class Item(pydantic.BaseModel):  # type: ignore[name-defined,misc]
        name: str
        price: float

    sent = encode([Item(name="a", price=1.5)], "p")
    assert sent == [{"name": "a", "price": 1.5}]
    assert decode(sent, list[Item], "p") == [Item(name="a", price=1.5)]
    with pytest.raises(InvalidParam) as error:
        decode({"name": "a", "price": "much"}, Item, "param 'item'")
    assert "price" in str(error.value) and "\n" not in str(error.value)


def test_objects_like_references_stay_unchanged() -> None:
    tricky = {"$output": "x", "deep": {"$value": {"$output": [1]}}}
    sent = json.loads(json.dumps(encode({"p": tricky}, "p")))
    assert resolve(sent, lambda name: pytest.fail(name)) == {"p": tricky}


def test_references_are_resolved_with_their_paths() -> None:
    sent = {"a": {"$output": "fetch"}, "b": [{"$output": "fetch", "path": ["rows", 1]}]}
    assert resolve(sent, lambda name: {"rows": [1, 2]}) == {"a": {"rows": [1, 2]}, "b": [2]}
    with pytest.raises(InvalidParam, match=r"the output of job 'fetch'\['rows'\]: has nothing at 7"):
        resolve({"$output": "fetch", "path": ["rows", 7]}, lambda name: {"rows": []})


def test_many_threads_find_the_decoder_of_a_type_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What stood for a type that one thread looked at was used by others, and called itself without end."""

    @dataclass
    class Point:
        x: int

    find = _decode._find  # pyright: ignore[reportPrivateUsage]

    def slow(wanted: Any) -> Any:
        time.sleep(0.02)
        return find(wanted)

    monkeypatch.setattr(_decode, "_find", slow)
    found: list[object] = []
    threads = [threading.Thread(target=lambda: found.append(decode({"x": 1}, Point, "it"))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [Point(1)] * 4


@pytest.mark.parametrize(
    ("wanted", "value"),
    [(set[object], [[1]]), (frozenset, [[1]]), (float, {"a": 1}), (Literal["a"], "x" * 10_000), (int, [1] * 10)],
)
def test_what_no_value_can_be_made_of_is_refused_shortly(wanted: Any, value: object) -> None:
    """Another error than InvalidParam is tried again: a job failed three times with a TypeError of a set."""
    with pytest.raises(InvalidParam) as refused:
        decode(value, wanted, "it")
    assert len(str(refused.value)) < 400
