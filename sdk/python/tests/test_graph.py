"""Jobs and workflows without a server: what is called, what is sent, what is refused."""

from __future__ import annotations

import asyncio
import inspect
import sys
import types
from datetime import timedelta
from typing import Any

import pytest

from tidegate import (
    DefinitionError,
    GraphError,
    InvalidParam,
    NonRetryable,
    Workflow,
    concurrency,
    current,
    job,
    limit,
    workflow,
)
from tidegate._load import by_handler, load


@job(
    retries=3,
    backoff="2s",
    timeout=600,
    max_lost=1,
    queue="web",
    limits=[limit("vendor", tenant="$.day"), concurrency(10)],
)
def fetch(day: str, pages: int = 1) -> list[int]:
    """Fetches."""
    return [pages] * 3


@job
async def send(rows: list[int], to: str = "ops") -> str:
    return f"{len(rows)} rows to {to}, attempt {current().attempt}"


@job
def note(*lines: str, **more: Any) -> dict[str, Any]:
    return {"lines": list(lines), "more": more}


@workflow
def report(day: str) -> str:
    return send.step(fetch(day), to="me")


@workflow(tags=["team:data"], on_failure="fail_fast", retention=timedelta(days=1), globals={"currency": "EUR"})
async def later(day: str) -> str:
    rows = fetch(day)
    return await send(rows)


def test_functions_stay_functions() -> None:
    assert fetch("monday", pages=2) == [2, 2, 2]
    assert repr(fetch) == "<job fetch>" and fetch.__doc__ == "Fetches."
    assert asyncio.run(send([1])) == "1 rows to ops, attempt 1"
    assert list(inspect.signature(fetch).parameters) == ["day", "pages"]


def test_a_graph_reads_like_calls() -> None:
    assert report.definition("monday") == {
        "name": "report",
        "jobs": [
            {
                "name": "fetch",
                "handler": "test_graph.fetch",
                "params": {"day": "monday"},
                "queue": "web",
                "retries": 3,
                "max_lost": 1,
                "backoff": "2s",
                "timeout": "600000ms",
                "limits": [
                    {"domain": "vendor", "entries": [["tenant", "$.day"]]},
                    {"concurrency": 10, "of": "queue"},
                ],
            },
            {
                "name": "send",
                "handler": "test_graph.send",
                "params": {"rows": {"$output": "fetch"}, "to": "me"},
                "after": ["fetch"],
            },
        ],
    }


def test_async_workflows_and_options() -> None:
    definition = later.options(key="k", start="manual").definition("monday")
    jobs = definition.pop("jobs")  # type: ignore[misc]
    assert definition == {
        "name": "later",
        "tags": ["team:data"],
        "globals": {"currency": "EUR"},
        "on_failure": "fail_fast",
        "retention": "86400000ms",
        "idempotency_key": "k",
        "start": "manual",
    }
    assert [one.get("after") for one in jobs] == [None, ["fetch"]]


def test_parts_of_outputs_lists_of_outputs_and_names() -> None:
    @workflow
    def wide() -> dict[str, Any]:
        parts: list[Any] = [fetch(day) for day in ("monday", "tuesday")]
        first = parts[0][1]
        last = note.options(name="last", after=parts[1], wait="15m", rule="all_done")(day=first)
        return {"all": parts, "last": last}

    graph, result = wide.build()
    assert list(graph.nodes) == ["fetch", "fetch-2", "last"]
    last = graph.nodes["last"].definition
    assert last.get("params") == {"day": {"$output": "fetch", "path": [1]}}
    assert sorted(last.get("after") or []) == ["fetch", "fetch-2"]
    assert (last.get("wait"), last.get("rule")) == ("15m", "all_done")
    assert list(result) == ["all", "last"]


def test_a_large_graph_takes_linear_time() -> None:
    @workflow
    def large() -> None:
        for _ in range(20_000):
            fetch("monday")

    assert len(large.definition()["jobs"]) == 20_000


def test_the_class_form_of_gush() -> None:
    class Report(Workflow):
        def configure(self, day: str) -> None:
            rows = self.run(fetch, params={"day": day})
            self.run(send, params={"rows": rows}, queue="mail")
            self.run(note, after=[fetch, "send"], before="end")
            self.run(note, name="end")

    jobs = Report.definition("monday")["jobs"]
    assert [(one.get("name"), one.get("after"), one.get("before")) for one in jobs] == [
        ("fetch", None, None),
        ("send", ["fetch"], None),
        ("note", ["fetch", "send"], ["end"]),
        ("end", None, None),
    ]
    assert jobs[1].get("queue") == "mail"


@pytest.mark.parametrize(
    ("use", "what"),
    [
        (lambda rows: rows + 1, "computed with"),
        (list, "iterated over"),
        (lambda rows: 1 if rows else 2, "tested in a condition"),
        (lambda rows: f"{rows}", "made into text"),
        (lambda rows: len(rows), "counted"),
        (lambda rows: rows == 3, "compared"),
    ],
)
def test_outputs_are_not_known_while_the_graph_is_built(use: Any, what: str) -> None:
    @workflow
    def wrong() -> None:
        use(fetch("monday"))

    with pytest.raises(GraphError, match=f"the output of job 'fetch' cannot be {what}"):
        wrong.definition()


def test_mistakes_name_their_place() -> None:
    @workflow
    def not_json() -> None:
        fetch(object())  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]

    with pytest.raises(InvalidParam, match=r"^job 'fetch', param 'day': a value of type object is not JSON"):
        not_json.definition()

    @workflow
    def empty() -> None:
        pass

    with pytest.raises(GraphError, match="workflow 'empty' has no jobs"):
        empty.definition()
    with pytest.raises(TypeError, match="job 'fetch': missing a required argument: 'day'"):
        fetch.params()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    with pytest.raises(DefinitionError, match=r"@job has no option 'retry'\. It has backoff"):
        job(retry=3)  # type: ignore[call-overload]  # pyright: ignore
    with pytest.raises(DefinitionError, match="is a generator"):

        @job
        def numbers() -> Any:
            yield 1

    @workflow
    async def waits() -> None:
        await asyncio.sleep(1)

    with pytest.raises(DefinitionError, match="waits for something that is no job"):
        waits.definition()


def claimed(params: dict[str, Any], inputs: list[Any] | None = None) -> Any:
    return {"params": params, "inputs": inputs or [], "omitted_inputs": []}


def test_a_worker_calls_with_params_and_inputs() -> None:
    rows = claimed(
        {"rows": {"$output": "fetch"}, "currency": "EUR"}, [{"job": "fetch", "handler": "fetch", "output": [1, 2]}]
    )
    assert asyncio.run(send.ainvoke(rows)) == "2 rows to ops, attempt 1"
    assert note.invoke(claimed({"lines": ["a"], "x": 1})) == {"lines": ["a"], "more": {"x": 1}}
    with pytest.raises(NonRetryable, match="job 'fetch' needs the param 'day'"):
        fetch.invoke(claimed({}))

    @job
    def bad() -> Any:
        return 1j

    with pytest.raises(NonRetryable, match="the output of job 'bad': a value of type complex is not JSON"):
        bad.invoke(claimed({}))


def test_jobs_of_a_module() -> None:
    found = load(__name__)
    assert {f"{__name__}.{name}" for name in ("fetch", "send", "note")} <= set(found)
    assert set(load(f"{__name__}:fetch")) == {f"{__name__}.fetch"}
    for target, text in [
        ("no_such_module_here", "there is no module 'no_such_module_here'"),
        (f"{__name__}:nothing", "has no 'nothing'"),
        ("json", "json has no jobs"),
        ("sys:path", "which is no job"),
    ]:
        with pytest.raises(DefinitionError, match=text):
            load(target)
    # Two functions, one handler: the meant one is not clear.
    other = types.ModuleType("other_jobs")
    sys.modules["other_jobs"] = other
    exec("def fetch(): pass", other.__dict__)
    assert len(by_handler([fetch, job(other.fetch)], "here")) == 2
    with pytest.raises(DefinitionError, match="two jobs with the handler 'fetch'"):
        by_handler([job(handler="fetch")(other.fetch), job(handler="fetch")(fetch.function)], "here")
