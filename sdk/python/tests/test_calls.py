"""Functions of every form are called with what their jobs were given, and keys are what the server takes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import tidegate
from tidegate import InvalidParam, NonRetryable, current, job, limit, limited, testing, workflow


@pytest.fixture(scope="module")
def server() -> Iterator[testing.Server]:
    with testing.server() as one:
        yield one


@job
def more(message: str, *rest: int, last: str = "z", **named: str) -> list[Any]:
    return [message, list(rest), last, named]


@job
def placed(first: int, /, second: int = 2, *rest: int, third: int = 3) -> list[int]:
    return [first, second, *rest, third]


@job
def same_names(value: int, /, **named: int) -> list[Any]:
    return [value, named]


@pytest.mark.parametrize(
    ("one", "args", "kwargs"),
    [
        (more, ("a",), {}),
        (more, ("a", 1, 2), {}),
        (more, ("a", 1), {"last": "y", "other": "x"}),
        (placed, (1,), {}),
        (placed, (1,), {"third": 4}),
        (placed, (1, 5, 6, 7), {"third": 4}),
        (same_names, (1,), {"other": 2}),
    ],
)
def test_a_function_of_any_form_is_called(server: testing.Server, one: Any, args: Any, kwargs: Any) -> None:
    assert server.run(one, *args, **kwargs).result() == one(*args, **kwargs)


def test_items_keep_their_place_when_one_before_them_is_left_out() -> None:
    """A definition over HTTP has names: what was left out was filled with the first item."""
    assert placed.invoke(claimed({"first": 1, "rest": [8, 9]})) == [1, 2, 8, 9, 3]
    assert more.invoke(claimed({"message": "a", "rest": [1]})) == ["a", [1], "z", {}]


def claimed(params: dict[str, Any]) -> Any:
    return {"params": params, "inputs": [], "omitted_inputs": []}


@pytest.mark.parametrize("name", ["value", "$trace"])
def test_a_param_that_hides_another_is_refused(name: str) -> None:
    with pytest.raises(InvalidParam, match="is the name of another param"):
        same_names.params(1, **{name: 2})


def injects(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        return function(*args, connection="c", **kwargs)

    return called


def first(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        return function("c", *args, **kwargs)

    return called


@job
@injects
def by_name(day: str, connection: str) -> str:
    return f"{day} by {connection}"


@job
@first
def by_place(connection: str, day: str) -> str:
    return f"{day} by {connection}"


@job
@limited("nothing", tenant="$.tenant")
def strict(tenant: str) -> str:
    return tenant


@pytest.mark.parametrize("one", [by_name, by_place])
def test_a_decorator_below_may_add_an_argument(server: testing.Server, one: Any) -> None:
    """The job was refused for a param that no caller gives."""
    assert server.run(one, "monday").result() == "monday by c"
    assert server.run(one, day="friday").result() == "friday by c"


def test_a_decorator_that_adds_nothing_changes_no_check() -> None:
    with pytest.raises(InvalidParam, match="missing a required argument: 'tenant'"):
        strict.params()  # type: ignore[call-arg]  # pyright: ignore
    # Nor does a function that takes more by itself.
    with pytest.raises(InvalidParam, match="missing a required argument: 'message'"):
        more.params()  # type: ignore[call-arg]  # pyright: ignore
    with pytest.raises(NonRetryable, match="needs the param 'tenant'"):
        strict.invoke(claimed({}))


def test_limits_count_by_what_is_left_out() -> None:
    """The job had no tenant for the server, and its limit refused it for good."""

    @job(limits=iter([limit("vendor", ("a", "$$.x"), tenant="$.tenant", plan="$.plan.name")]))
    def charge(cents: int, tenant: str = "acme", plan: Any = None, note: str = "") -> None: ...

    for enqueued in (charge, charge.options(priority=3)):

        @workflow
        def one(enqueued: Any = enqueued) -> None:
            enqueued(5)

        [made] = one.definition()["jobs"]
        assert made.get("params") == {"cents": 5, "tenant": "acme"}
        # Also the second time.
        assert made.get("limits") == one.definition()["jobs"][0].get("limits")
        assert len(made.get("limits") or []) == 1

    @workflow(globals={"tenant": "of all"})
    def shared() -> None:
        charge(5)

    assert shared.definition()["jobs"][0].get("params") == {"cents": 5}


@job
def seen(value: int = 0) -> int:
    return value


def test_keys_have_any_characters(server: testing.Server) -> None:
    """HTTP takes them in the body, and a header does not."""
    for key in ("Bestellung-ü", "\N{SNOWMAN}/1", " with blanks ", "plain"):
        first_run = server.run(seen.options(key=key), 1)
        assert server.run(seen.options(key=key), 1).id == first_run.id
        assert server.client.find_workflow(key=key)["id"] == first_run.id
        body: tidegate.api.Definition = {"name": "w", "jobs": [{"handler": seen.handler, "name": "seen"}]}
        created = server.client.create_workflow(body, idempotency_key=f"{key}-2")
        assert server.client.create_workflow(body, idempotency_key=f"{key}-2")["id"] == created["id"]


@pytest.mark.parametrize("key", ["", 3])
def test_a_key_that_is_none_is_refused(key: Any) -> None:
    with pytest.raises(tidegate.DefinitionError, match="job 'seen', key: expected a text of at least one character"):
        seen.options(key=key)


def test_a_key_of_other_arguments_names_its_run(server: testing.Server) -> None:
    run = server.run(seen.options(key="order/1"), 1)
    with pytest.raises(tidegate.IdempotencyMismatch) as raised:
        seen.options(key="order/1").enqueue(2)
    assert f"the key 'order/1' was used with other arguments or options, by run {run.id}" in str(raised.value)


@job
def parent(numbers: list[int]) -> int:
    return sum(child.result() for child in [current().spawn(seen, number) for number in numbers])


@pytest.mark.parametrize("name", ["n" * 200, "é" * 100])
def test_children_of_a_job_with_a_long_name(server: testing.Server, name: str) -> None:
    @workflow
    def long() -> Any:
        return parent.options(name=name)([1, 2])

    assert server.run(long).result() == 3
