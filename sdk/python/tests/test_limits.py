"""Limits of jobs, the client of rate limits, and ``@limited``: on a server, whose clock tests move."""

from __future__ import annotations

import asyncio
import pickle
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import tidegate
from conftest import Server as RealServer
from tidegate import (
    DefinitionError,
    InvalidParam,
    LimitExceeded,
    LimitWarning,
    NotTidegate,
    ServerUnavailable,
    TidegateError,
    concurrency,
    job,
    limit,
    limited,
    testing,
    workflow,
)
from tidegate.limits import RateLimits

#: Two units an hour for each account; the route of a gateway counts in the same one.
RULES = """domain: vendor
descriptors:
  - key: account
    rate_limit: {unit: hour, requests_per_unit: 2}
  - key: route
    rate_limit: {unit: second, requests_per_unit: 1}
"""


@pytest.fixture
def server() -> Iterator[testing.Server]:
    with testing.server(limits=RULES) as one:
        yield one


@pytest.fixture
def limits(server: testing.Server) -> Iterator[RateLimits]:
    one = RateLimits(server.limits_url)
    yield one
    one.close()


@pytest.mark.parametrize(
    ("made", "definition"),
    [
        (limit("vendor"), {"domain": "vendor", "entries": []}),
        (limit("vendor", tenant="$.tenant"), {"domain": "vendor", "entries": [["tenant", "$.tenant"]]}),
        (
            limit("vendor", ("user-id", "$.user"), free=True, hits=3),
            {"domain": "vendor", "entries": [["user-id", "$.user"], ["free", "true"]], "hits": 3},
        ),
        (concurrency(3), {"concurrency": 3, "of": "queue"}),
        (concurrency(1, tenant=7, of="all"), {"concurrency": 1, "of": "all", "entries": [["tenant", "7"]]}),
    ],
)
def test_what_is_sent(made: Any, definition: dict[str, Any]) -> None:
    assert made == definition


def test_units_are_taken_until_there_is_no_room(server: testing.Server, limits: RateLimits) -> None:
    limits.take("vendor", account="a")
    limits.take("vendor", ("account", "a"))
    with pytest.raises(LimitExceeded) as caught:
        limits.take("vendor", account="a")
    assert 0 < caught.value.retry_after <= 3600
    assert str(caught.value) == f"rate limit vendor (account=a) has no room for {caught.value.retry_after:g} s"
    # A worker process sends errors to another one.
    again = pickle.loads(pickle.dumps(caught.value))
    assert (again.domain, again.entries, again.retry_after, str(again)) == (
        "vendor",
        [["account", "a"]],
        caught.value.retry_after,
        str(caught.value),
    )
    limits.take("vendor", account="b", hits=2)
    with pytest.raises(LimitExceeded):
        limits.take("vendor", account="b")
    server.advance(caught.value.retry_after)
    limits.take("vendor", account="a")


def test_what_has_no_limit_is_free(limits: RateLimits) -> None:
    for _ in range(10):
        limits.take("vendor", nothing="here")
        limits.take("elsewhere", account="a")


@pytest.mark.parametrize(
    ("domain", "account", "hits", "message"),
    [
        ("", "a", 1, "rate limit '': the server refused the request. A domain is not empty, and texts are UTF-8"),
        (
            "vendor",
            "\ud800",
            1,
            "rate limit 'vendor': the server refused the request. A domain is not empty, and texts are UTF-8",
        ),
        ("vendor", "a", 0, "rate limit 'vendor': hits is 0. Expected 1 to 4294967295"),
        ("vendor", "a", 2**32, "rate limit 'vendor': hits is 4294967296. Expected 1 to 4294967295"),
    ],
)
def test_refusals_have_a_reason(limits: RateLimits, domain: str, account: str, hits: int, message: str) -> None:
    with pytest.raises(InvalidParam) as caught:
        limits.take(domain, account=account, hits=hits)
    assert str(caught.value) == message


def test_a_server_that_is_down_and_one_that_is_another_are_one_line(server: testing.Server) -> None:
    with pytest.raises(ServerUnavailable) as down:
        RateLimits("http://127.0.0.1:9").take("vendor", account="a")
    wanted = "http://127.0.0.1:9 does not answer: connection refused. Start the server (tidegate), or set "
    assert str(down.value) == wanted + "TIDEGATE_LIMITS_SERVER"
    with pytest.raises(NotTidegate, match=r"/json answered with 404\. Look at TIDEGATE_LIMITS_SERVER$"):
        RateLimits(server.url).take("vendor", account="a")


@pytest.mark.parametrize(
    ("variables", "address"),
    [
        ({}, "http://127.0.0.1:8080"),
        ({"TIDEGATE_SERVER": "https://tidegate.example:7071"}, "http://tidegate.example:8080"),
        ({"TIDEGATE_SERVER": "http://[::1]:7070"}, "http://[::1]:8080"),
        ({"TIDEGATE_SERVER": "http://a", "TIDEGATE_LIMITS_SERVER": "b:81"}, "http://b:81"),
    ],
)
def test_the_address_comes_from_the_environment(
    variables: dict[str, str], address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("TIDEGATE_SERVER", "TIDEGATE_LIMITS_SERVER"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert RateLimits()._address.url == address  # type: ignore[attr-defined]  # pyright: ignore


def made(kind: str, **options: Any) -> Callable[[str], str]:
    """A function or an async function that takes a unit for each call."""
    if kind == "sync":

        @limited("vendor", account="$.who", **options)
        def charge(who: str) -> str:
            return who

        return charge

    @limited("vendor", account="$.who", **options)
    async def later(who: str) -> str:
        return who

    return lambda who: asyncio.run(later(who))


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_call_without_room_raises_or_waits(kind: str, server: testing.Server) -> None:
    charge = made(kind)
    assert [charge("a"), charge(who="a")] == ["a", "a"]
    with pytest.raises(LimitExceeded, match=r"rate limit vendor \(account=a\) has no room"):
        charge("a")
    assert charge("b") == "b"
    # It would have to wait for longer than it may.
    with pytest.raises(LimitExceeded):
        made(kind, wait="1ms")("a")
    clock = server.advance(0)
    assert made(kind, wait="2h")("a") == "a"
    assert 0 < (server.advance(0) - clock).total_seconds() <= 3600


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_call_waits_for_the_time_of_a_real_server(kind: str, make_server: Callable[..., RealServer]) -> None:
    server = make_server()
    limits = RateLimits(server.limits_address)

    @limited("shop", each="x", wait=5, limits=limits)
    def charge() -> None: ...

    @limited("shop", each="x", wait=5, limits=limits)
    async def later() -> None:
        # The loop goes on meanwhile.
        await asyncio.sleep(0)

    began = time.monotonic()
    for _ in range(3):
        if kind == "sync":
            charge()
        else:
            asyncio.run(later())
    # One in each second: the third is in the second one after the first, at the soonest.
    assert 1.0 <= time.monotonic() - began < 5
    limits.close()


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_arguments_and_what_is_in_them_are_entries(kind: str, server: testing.Server) -> None:
    class Order:
        tenant = "a"

    @limited("vendor", account="$.order.tenant", hits=2)
    def charge(order: Any, cents: int = 5) -> int:
        return cents

    assert charge({"tenant": "b"}) == 5
    assert charge(Order(), cents=7) == 7
    with pytest.raises(LimitExceeded, match="account=a"):
        charge(Order())
    with pytest.raises(
        InvalidParam, match=r"^@limited: '\$\.order\.tenant' is None here\. Expected a text or a number$"
    ):
        charge({})
    with pytest.raises(TypeError, match="missing a required argument: 'order'"):
        charge()  # type: ignore[call-arg]  # pyright: ignore


def test_mistakes_are_raised_where_the_function_is_made() -> None:
    with pytest.raises(DefinitionError, match=r"@limited: .*charge has no parameter 'who', which '\$\.who' names"):

        @limited("vendor", account="$.who")
        def charge(cents: int) -> None: ...

    with pytest.raises(InvalidParam, match="'soon' is not a time span"):
        limited("vendor", wait="soon")


calls: list[str] = []


@job
@limited("vendor", account="$.account")
def charge(account: str, number: int) -> int:
    calls.append(account)
    return number


@job(limits=[limit("vendor", account="$.account")])
def refund(account: str, number: int) -> int:
    return number


@workflow
def day(account: str) -> Any:
    return [charge(account, number) for number in range(3)] + [refund(account, number) for number in range(3)]


def test_jobs_and_functions_share_a_limit_and_nothing_fails(server: testing.Server) -> None:
    calls.clear()
    clock = server.advance(0)
    run = server.run(day, "a")
    assert run.result() == [0, 1, 2, 0, 1, 2]
    assert calls == ["a", "a", "a"]
    # Six units, two an hour: the last ones are taken in the third hour. What had no room did not count as an attempt.
    assert (server.advance(0) - clock).total_seconds() > 3600
    assert {one["attempt"] for one in run.jobs()} == {1}


def test_so_many_jobs_of_a_limit_of_concurrency_run(server: testing.Server) -> None:
    one: dict[str, Any] = {"handler": "nobody", "queue": "q", "limits": [concurrency(2, tenant="$.tenant")]}
    jobs = [{**one, "name": f"{tenant}{place}", "params": {"tenant": tenant}} for tenant in "ab" for place in range(4)]
    server.client.create_workflow({"name": "many", "jobs": jobs})  # type: ignore[typeddict-item]  # pyright: ignore
    claimed = server.client.claim_jobs({"queues": ["q"], "worker": "w", "limit": 16})["jobs"]
    assert sorted(str(one["params"]["tenant"]) for one in claimed) == ["a", "a", "b", "b"]


def test_a_server_for_tests_gets_the_calls_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEGATE_LIMITS_SERVER", "http://127.0.0.1:9")

    @limited("vendor", account="a")
    def call() -> int:
        return 1

    with testing.server(limits=RULES):
        assert [call(), call()] == [1, 1]
        with pytest.raises(LimitExceeded):
            call()
    assert issubclass(LimitExceeded, tidegate.Throttled) and issubclass(LimitExceeded, TidegateError)


@job(limits=[limit("vendr", account="$.account")])
def misspelt(account: str) -> str:
    return account


@job(limits=[limit("shop", account="$.account"), limit("vendor", account="$.account"), concurrency(1)])
def unknown(account: str) -> str:
    return account


@workflow
def both(account: str) -> list[str]:
    return [misspelt(account), unknown(account)]


@pytest.fixture
def never_warned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another test may have had a server at the same port."""
    warned: set[tuple[str, str]] = set()
    monkeypatch.setattr("tidegate._run._warned", warned)


@pytest.mark.usefixtures("never_warned")
def test_a_limit_without_a_rule_is_warned_of_once_for_each_domain(server: testing.Server) -> None:
    with pytest.warns(LimitWarning) as caught:
        assert server.run(misspelt, "a").result() == "a"
        assert server.run(misspelt, "b").result() == "b"
        both.start("a")
        unknown.enqueue("a")
    text = "no rule of this server has the domain '{}', so this limits nothing (job '{}' at {})"
    assert [str(one.message) for one in caught] == [
        text.format("vendr", "misspelt", server.url),
        text.format("shop", "unknown", server.url),
    ]
    assert {one.filename for one in caught} == {__file__}
    with testing.server(limits=RULES) as other, pytest.warns(LimitWarning, match=other.url):
        misspelt.enqueue("a")


@pytest.mark.usefixtures("never_warned")
def test_a_filter_makes_the_warning_an_error_of_each_start(server: testing.Server) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", LimitWarning)
        for _ in range(2):
            with pytest.raises(LimitWarning, match=r"^no rule of this server has the domain 'vendr'"):
                misspelt.enqueue("a")
        job(handler="known", limits=[limit("vendor", account="$.account")])(misspelt.function).enqueue("a")
