"""What goes through params, outputs and results comes back as it was, for every value that JSON has, and for every type
that docs/python.md names."""

from __future__ import annotations

import collections
import datetime
import decimal
import enum
import json
import os
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Generic, Literal, NamedTuple, NewType, TypedDict, TypeVar

import pydantic
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tidegate import InvalidParam, NonRetryable, job, testing, workflow
from tidegate._decode import decode
from tidegate._values import encode, encode_output, resolve

#: How many values are tried; more of them by hand.
EXAMPLES = int(os.environ.get("TIDEGATE_TEST_VALUES", "300"))
settings.register_profile(
    "tidegate",
    max_examples=EXAMPLES,
    deadline=None,
    database=None,
    derandomize="TIDEGATE_TEST_VALUES" not in os.environ,
)
settings.load_profile("tidegate")

T = TypeVar("T")

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
keys = st.sampled_from(["$output", "$value", "path", "$trace", "$.x", ""]) | texts
scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-(10**40), 10**40)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts
)
values = st.recursive(
    scalars, lambda one: st.lists(one, max_size=4) | st.dictionaries(keys, one, max_size=4), max_leaves=12
)


def same(left: object, right: object) -> bool:
    """Whether they are the same JSON: 1, 1.0 and True are three values."""
    return json.dumps(left) == json.dumps(right)


def sent(value: Any) -> Any:
    """A param as the job's process has it."""
    return resolve(json.loads(json.dumps(encode(value, "it"))), lambda name: pytest.fail(name))


@given(values)
def test_params_come_back(value: Any) -> None:
    assert same(sent(value), value)


@given(values)
def test_outputs_are_what_other_languages_see(value: Any) -> None:
    assert same(encode_output(value, "it"), value)


@job
def echo(value: Any) -> Any:
    return value


@job
def gather(**more: Any) -> dict[str, Any]:
    return more


@workflow(globals={"shared": {"$value": {"$output": "x"}}})
def there_and_back(value: Any) -> dict[str, Any]:
    first: Any = echo(value)
    return {"literal": value, "first": first, "second": echo(first), "part": gather(**{"$output": value, "x": [first]})}


@pytest.fixture(scope="module")
def server() -> Iterator[testing.Server]:
    with testing.server() as one:
        yield one


@settings(max_examples=max(EXAMPLES // 10, 1), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(values)
def test_jobs_hand_on_what_they_get(server: testing.Server, value: Any) -> None:
    result = server.run(there_and_back, value).result()
    shared = {"$value": {"$output": "x"}}
    part = {"shared": shared, "$output": value, "x": [value]}
    # The order of params is that of the server.
    assert same(
        {**result, "part": dict(sorted(result["part"].items()))},
        {"literal": value, "first": value, "second": value, "part": dict(sorted(part.items()))},
    )
    assert same(server.run(echo, value).result(), value)


def test_what_others_wrote_is_not_taken_for_a_handle() -> None:
    """A definition over HTTP escapes nothing. A colour of a design token ended the attempt with an AttributeError."""
    for value in ({"$value": "#f00"}, {"$value": {"x": 1}}, {"$output": 3}, {"$output": "a", "more": 1}):
        assert resolve(value, lambda name: pytest.fail(name)) == value
    assert resolve({"$value": {"$output": "a"}}, lambda name: pytest.fail(name)) == {"$output": "a"}
    assert resolve({"$output": "a"}, lambda name: name * 2) == "aa"


class Colour(enum.Enum):
    RED = "red"
    PALE = (255, 128)
    NONE = None


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Access(enum.Flag):
    READ = enum.auto()
    WRITE = enum.auto()


class Word(str):
    def __str__(self) -> str:
        return "not what it is"


class Shade(str, enum.Enum):
    DARK = "dark"
    LIGHT = "light"


class Pair(NamedTuple):
    at: datetime.date
    colour: Colour


class Entry(TypedDict, total=False):
    at: datetime.datetime
    more: list[Colour]


@dataclass
class Line:
    sku: str
    cents: int = 0
    doubled: int = field(init=False)

    def __post_init__(self) -> None:
        self.doubled = 2 * self.cents


@dataclass(frozen=True)
class Box(Generic[T]):
    inside: T
    more: list[T] | None = None


@dataclass(frozen=True)
class DateBox(Box[datetime.date]):
    pass


@dataclass
class Tree:
    name: str
    below: list[Tree] = field(default_factory=list)


class Item(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid", serialize_by_alias=True)
    name: str = pydantic.Field(alias="Name")
    unit: str = pydantic.Field(validation_alias="unit_in", serialization_alias="unitOut")
    at: datetime.datetime | None = None
    tags: set[str] = pydantic.Field(default_factory=set)

    @pydantic.computed_field  # type: ignore[prop-decorator]
    @property
    def size(self) -> int:
        return len(self.name)


class Strict(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(strict=True)
    at: datetime.date
    items: tuple[Item, ...] = ()


class Held(pydantic.BaseModel, Generic[T]):
    inside: T


@pydantic.dataclasses.dataclass
class Point:
    x: int
    at: datetime.date


UserId = NewType("UserId", uuid.UUID)
moments = st.datetimes(timezones=st.none() | st.just(datetime.timezone.utc))
lines = st.builds(Line, texts, st.integers())
items = st.builds(
    lambda name, unit, at, tags: Item(Name=name, unit_in=unit, at=at, tags=tags), texts, texts, moments, st.sets(texts)
)
TYPES: list[tuple[Any, st.SearchStrategy[Any]]] = [
    (str, texts),
    (float, st.floats(allow_nan=False, allow_infinity=False)),
    (
        bool | int | float | str,
        st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    ),
    (datetime.datetime, moments),
    (datetime.date, st.dates()),
    (datetime.time, st.times(timezones=st.none() | st.just(datetime.timezone.utc))),
    (uuid.UUID, st.uuids()),
    (UserId, st.uuids()),
    (decimal.Decimal, st.decimals(allow_nan=False)),
    (bytes, st.binary()),
    (set[int], st.sets(st.integers())),
    (frozenset[datetime.date], st.frozensets(st.dates())),
    (collections.deque[Colour], st.builds(collections.deque, st.lists(st.sampled_from(Colour)))),
    (tuple[int, Colour], st.tuples(st.integers(), st.sampled_from(Colour))),
    (tuple[datetime.date, ...], st.lists(st.dates()).map(tuple)),
    (Sequence[datetime.date], st.lists(st.dates())),
    (Mapping[str, Line], st.dictionaries(texts, lines)),
    (dict[Shade, Level], st.dictionaries(st.sampled_from(Shade), st.sampled_from(Level))),
    (Colour, st.sampled_from(Colour)),
    (Level, st.sampled_from(Level)),
    (Access, st.sampled_from([Access.READ, Access.WRITE, Access.READ | Access.WRITE])),
    (Literal["a", 1, Level.HIGH], st.sampled_from(["a", 1, Level.HIGH])),
    (Word, texts.map(Word)),
    (Pair, st.builds(Pair, st.dates(), st.sampled_from(Colour))),
    (Entry, st.fixed_dictionaries({}, optional={"at": moments, "more": st.lists(st.sampled_from(Colour))})),
    (Line, lines),
    (Annotated[Line | None, "note"], st.none() | lines),
    (Box[Colour], st.builds(Box, st.sampled_from(Colour), st.none() | st.lists(st.sampled_from(Colour)))),
    (Box[Box[uuid.UUID]], st.builds(Box, st.builds(Box, st.uuids()))),
    (DateBox, st.builds(DateBox, st.dates(), st.lists(st.dates()))),
    (
        Tree,
        st.recursive(
            st.builds(Tree, texts), lambda one: st.builds(Tree, texts, st.lists(one, max_size=2)), max_leaves=4
        ),
    ),
    (Item, items),
    (Strict, st.builds(lambda at, items: Strict(at=at, items=tuple(items)), st.dates(), st.lists(items, max_size=2))),
    (Held[datetime.date], st.builds(lambda at: Held[datetime.date](inside=at), st.dates())),
    (Point, st.builds(Point, st.integers(-100, 100), st.dates())),
    (list[Item | Line], st.lists(items | lines, max_size=3)),
]


@pytest.mark.parametrize(("wanted", "strategy"), TYPES, ids=[str(wanted) for wanted, _ in TYPES])
def test_values_of_a_type_come_back(wanted: Any, strategy: st.SearchStrategy[Any]) -> None:
    @settings(max_examples=max(EXAMPLES // 6, 1))
    @given(strategy)
    def check(value: Any) -> None:
        for back in (sent(value), json.loads(json.dumps(encode_output(value, "it")))):
            found = decode(back, wanted, "it")
            assert found == value
            assert type(found) is type(value)

    check()


def test_a_changed_field_that_the_class_computes_comes_back() -> None:
    line = Line("a", 2)
    line.doubled = 5
    assert decode(sent(line), Line, "it").doubled == 5


def test_an_alias_is_taken_too() -> None:
    assert decode({"Name": "a", "unit_in": "kg"}, Item, "it").unit == "kg"


class Account(pydantic.BaseModel):
    user: str
    token: pydantic.SecretStr


def test_a_secret_is_refused_and_not_replaced() -> None:
    """pydantic writes stars in its place, which came back as the secret."""
    for value in (Account(user="a", token=pydantic.SecretStr("hidden")), pydantic.SecretStr("hidden")):
        with pytest.raises(InvalidParam, match="All readers of the workflow would see a secret") as raised:
            encode({"a": [value]}, "param 'x'")
        assert "hidden" not in str(raised.value)
    # Stars that are none, and a secret that the model itself writes.
    assert decode(sent(Item(Name="*" * 10, unit_in="")), Item, "it").name == "*" * 10


def test_a_value_of_another_simple_type_is_refused() -> None:
    """One argument too few quotes, and the job computed with a text."""

    @job
    def double(number: int, name: str | None = None) -> int:
        return 2 * number

    with testing.server(jobs=[double]) as server:
        with pytest.raises(InvalidParam, match="job 'double', param 'number': expected an int, got str"):
            server.run(double, "21")  # type: ignore[arg-type]
        assert server.run(double, 21, None).result() == 42
    with pytest.raises(NonRetryable, match="param 'number': expected an int, got str"):
        double.arguments({"number": "21"})
