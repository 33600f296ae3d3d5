"""Runs: what is said while one waits, and when its events end."""

from __future__ import annotations

import logging

import pytest

import tidegate
from tidegate import Client, job, testing, workflow
from tidegate import _run as runs  # pyright: ignore[reportPrivateUsage]


@job
def fetch(day: str) -> int:
    return len(day)


@job
def double(number: int) -> int:
    return 2 * number


@workflow
def report(day: str) -> int:
    return double(fetch(day))


def test_a_wait_for_no_worker_is_logged_once(
    server: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "FIRST_POLL_SECONDS", 0.05)
    monkeypatch.setattr(runs, "POLL_SECONDS", 0.05)
    with tidegate.using(Client(server)), caplog.at_level(logging.WARNING, "tidegate"):
        run = fetch.options(queue="nobody-here").enqueue("monday")
        with pytest.raises(tidegate.WorkflowNotDone):
            run.result(timeout=0.5)
    [line] = [one for one in caplog.records if one.name == "tidegate"]
    assert line.levelno == logging.WARNING
    expected = (
        f"workflow 'fetch' ({run.id}) waits. Job 'fetch': no worker of this server asks for the queue 'nobody-here'"
    )
    assert line.getMessage() == expected


def test_events_end_with_the_workflow() -> None:
    with testing.server(jobs=[fetch, double]) as server:
        run = report.start("monday")
        seen = run.events()
        first = next(seen)
        assert (first.kind, first.data["status"]) == ("workflow", "running")
        server.finish(run)
        rest = list(seen)
        assert {one.data["name"] for one in rest if one.kind == "job"} == {"fetch", "double"}
        assert (rest[-1].kind, rest[-1].data["status"]) == ("workflow", "succeeded")
        # Of one that is over, they are how it ended.
        assert [(one.kind, one.data["status"]) for one in run.events()] == [("workflow", "succeeded")]
