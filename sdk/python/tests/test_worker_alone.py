"""The end of a process is reported with its cause, and costs no other job anything."""

from __future__ import annotations

import pathlib
import re
import signal
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from fake_work import FakeWork
from test_worker_support import APP, Worker, until
from tidegate._span import seconds
from tidegate.worker.settings import reserve

MORE = """
if pathlib.Path("dies").exists():
    os._exit(7)

@job
def pid(file: str = ""):
    if file:
        pathlib.Path(file).write_text(str(os.getpid()))
    return os.getpid()

@job
def crashes_later(begun: str, file: str):
    pathlib.Path(begun).write_text("begun")
    while not pathlib.Path(file).exists():
        time.sleep(0.01)
    os.kill(os.getpid(), 11)
    time.sleep(60)

@job
def hangs(file: str):
    pathlib.Path(file).write_text("begun")
    while True:
        time.sleep(0.01)

@job
def until_file(begun: str, file: str):
    pathlib.Path(begun).write_text("begun")
    while not pathlib.Path(file).exists():
        time.sleep(0.01)
    return "done"

@job
async def ablocks():
    time.sleep(60)

@job
def extends_now():
    current().extend("10m")
    return "extended"
"""


@pytest.fixture
def fake() -> Iterator[FakeWork]:
    with FakeWork() as server:
        yield server


class Started:
    """A worker of the fake server."""

    def __init__(self, fake: FakeWork, folder: pathlib.Path, *arguments: str) -> None:
        (folder / "app.py").write_text(APP + MORE)
        self.folder = folder
        self.worker = Worker(fake.url, folder, "--health", "0", *arguments).ready()
        found = re.search(r"http://127.0.0.1:[0-9]+", self.worker.text())
        assert found is not None
        self.health = found[0]

    def healthz(self) -> str:
        try:
            with urllib.request.urlopen(f"{self.health}/healthz") as answer:
                return str(answer.read().decode())
        except urllib.error.HTTPError as error:
            # While the new process loads the program, none takes jobs.
            return error.read().decode()

    def file(self, name: str) -> str:
        return str(self.folder / name)


@pytest.fixture
def start(fake: FakeWork, tmp_path: pathlib.Path) -> Iterator[Any]:
    started: list[Started] = []

    def begin(*arguments: str) -> Started:
        started.append(Started(fake, tmp_path, *arguments))
        return started[-1]

    yield begin
    for one in started:
        one.worker.close()


def test_the_jobs_of_a_process_that_ends_are_reported_as_crashed(fake: FakeWork, start: Any) -> None:
    one = start("--concurrency", "2")
    crash, other = fake.give(
        ("crashes_later", {"begun": one.file("begun"), "file": one.file("go")}), ("hangs", {"file": one.file("begun2")})
    )
    until(lambda: all(pathlib.Path(one.file(name)).exists() for name in ("begun", "begun2")), "both run")
    [waiting] = fake.give(("noop", {}))
    # One that the worker has no room for is not asked for: it comes with the end of another.
    pathlib.Path(one.file("go")).write_text("")
    for lease in (crash, other):
        assert fake.report(lease) == {"lease": lease, "outcome": "crashed", "signal": 11, "alone": False}
    one.worker.prints("was ended by SIGSEGV, and 2 jobs were in it. Another one starts")
    assert fake.report(waiting)["outcome"] == "succeeded"
    [ended] = fake.give(("exits", {}))
    assert fake.report(ended) == {"lease": ended, "outcome": "crashed", "exit": 3, "alone": False}


def test_what_had_ended_in_a_process_that_ends_counts_as_begun(fake: FakeWork, start: Any) -> None:
    """It counted as not begun, so its units of rate limits came back although its calls were made."""
    one = start("--concurrency", "1")
    fake.answers_reports.clear()
    _, ended, crash, waits = fake.give(
        ("noop", {}),
        ("nap", {"seconds": 0.1}),
        ("crashes_later", {"begun": one.file("begun"), "file": one.file("go")}),
        ("noop", {}),
    )
    until(pathlib.Path(one.file("begun")).exists, "the third one runs")
    pathlib.Path(one.file("go")).write_text("")
    one.worker.prints("was ended by SIGSEGV")
    fake.answers_reports.set()
    assert fake.report(ended) == {"lease": ended, "outcome": "given_back"}
    assert fake.report(crash)["outcome"] == "crashed"
    fake.not_begun(waits)
    assert fake.report(waits)["outcome"] == "succeeded"


def test_a_suspect_runs_alone_in_a_new_process(fake: FakeWork, start: Any) -> None:
    one = start()
    [before, other] = fake.give(("pid", {}), ("until_file", {"begun": one.file("begun"), "file": one.file("go")}))
    until(pathlib.Path(one.file("begun")).exists, "another one runs")
    [good, bad] = fake.give(("pid", {}), ("crashes", {}), suspect=True)
    assert fake.report(bad) == {"lease": bad, "outcome": "crashed", "signal": 9, "alone": True}
    assert fake.report(good)["output"] != fake.report(before)["output"]
    one.worker.prints(f"job 'crashes' of workflow {bad[:8]} runs in a process of its own")
    one.worker.prints(f"and had this job only: job 'crashes' of workflow {bad[:8]}")
    # Neither its process nor those that had nothing to do with it are started again.
    pathlib.Path(one.file("go")).write_text("")
    assert fake.report(other)["output"] == "done"
    [after] = fake.give(("pid", {}))
    assert fake.report(after)["output"] == fake.report(before)["output"]
    assert "Another one starts" not in one.worker.text()
    assert one.healthz() == "1 of 1 processes run jobs\n"
    until(lambda: len(one.worker.children()) == 1, "its process has ended")
    assert one.worker.stop() == 0


def test_more_suspects_than_run_at_once_wait_and_keep_their_leases(fake: FakeWork, start: Any) -> None:
    one = start("--lease", "5s")
    leases = fake.give(
        *[("until_file", {"begun": one.file(f"begun{at}"), "file": one.file("go")}) for at in range(6)], suspect=True
    )
    until(lambda: all(pathlib.Path(one.file(f"begun{at}")).exists() for at in range(4)), "four run")
    until(lambda: set(leases) <= {lease for body in fake.extends for lease in body["leases"]}, "all are extended")
    assert not pathlib.Path(one.file("begun4")).exists()
    assert (len(one.worker.children()), len(one.worker.ordinary())) == (5, 1)
    pathlib.Path(one.file("go")).write_text("")
    assert [fake.report(lease)["output"] for lease in leases] == ["done"] * 6
    assert one.worker.stop() == 0


def test_suspects_that_wait_are_returned_when_the_worker_stops(fake: FakeWork, start: Any) -> None:
    one = start()
    leases = fake.give(
        *[("until_file", {"begun": one.file(f"begun{at}"), "file": one.file("go")}) for at in range(6)], suspect=True
    )
    until(lambda: all(pathlib.Path(one.file(f"begun{at}")).exists() for at in range(4)), "four run")
    one.worker.process.send_signal(signal.SIGTERM)
    fake.not_begun(*leases[4:])
    pathlib.Path(one.file("go")).write_text("")
    assert [fake.report(lease)["output"] for lease in leases[:4]] == ["done"] * 4
    assert one.worker.process.wait(10) == 0


def test_a_suspect_whose_process_ends_before_it_begins_is_not_to_blame(fake: FakeWork, start: Any) -> None:
    """The program may not load at this moment."""
    one = start()
    pathlib.Path(one.file("dies")).write_text("")
    [lease] = fake.give(("noop", {}), suspect=True)
    assert fake.report(lease) == {"lease": lease, "outcome": "given_back", "pause": "5s"}
    assert one.worker.stop() == 0


def test_a_worker_that_stops_reports_it_and_returns_its_jobs(fake: FakeWork, start: Any) -> None:
    one = start("--concurrency", "1", "--grace", "3s")
    [running] = fake.give(("hangs", {"file": one.file("begun")}))
    until(pathlib.Path(one.file("begun")).exists, "it runs")
    began = time.monotonic()
    one.worker.process.send_signal(signal.SIGTERM)
    until(lambda: any(body.get("stopping") for body in fake.extends), "the server knows it", 2)
    assert next(body["leases"] for body in fake.extends if body.get("stopping")) == [running]
    assert fake.report(running) == {"lease": running, "outcome": "given_back"}
    # 1.5 s before the end of its grace.
    assert time.monotonic() - began < 3
    assert one.worker.process.wait(5) == 0


def test_an_extension_that_was_on_its_way_does_not_count_as_stopping(fake: FakeWork, start: Any) -> None:
    """The worker took it for said, and its next extension came after the platform had killed it."""
    one = start("--lease", "12s", "--grace", "20s")
    [running] = fake.give(("until_file", {"begun": one.file("begun"), "file": one.file("go")}))
    fake.answers_extensions.clear()
    until(lambda: any(running in body["leases"] for body in fake.extends), "an extension is on its way")
    one.worker.process.send_signal(signal.SIGTERM)
    one.worker.prints("no more jobs are taken")
    fake.answers_extensions.set()
    # The next one by itself would come 4 s later.
    until(lambda: any(body.get("stopping") and running in body["leases"] for body in fake.extends), "it is said", 2)
    pathlib.Path(one.file("go")).write_text("")
    assert fake.report(running)["output"] == "done"
    assert one.worker.process.wait(10) == 0


@pytest.mark.parametrize(("grace", "kept"), [(20.0, 2.0), (3.0, 1.5), (0.2, 0.1), (0.0, 0.0)])
def test_a_part_of_the_grace_is_for_giving_back(grace: float, kept: float) -> None:
    assert reserve(grace) == kept


def test_what_was_taken_ahead_and_waits_is_returned(fake: FakeWork, start: Any) -> None:
    """After `given_back`, its hits of rate limits stayed spent."""
    one = start("--concurrency", "1")
    running, *ahead = fake.give(
        ("until_file", {"begun": one.file("begun"), "file": one.file("go")}), *[("noop", {})] * 3
    )
    fake.not_begun(*ahead)
    pathlib.Path(one.file("go")).write_text("")
    assert [fake.report(lease)["outcome"] for lease in (running, *ahead)] == ["succeeded"] * 4


def test_jobs_that_have_not_begun_are_returned_at_once_when_it_stops(fake: FakeWork, start: Any) -> None:
    one = start("--concurrency", "1")
    [running, *waiting] = fake.give(
        ("until_file", {"begun": one.file("begun"), "file": one.file("go")}), *[("noop", {})] * 5
    )
    until(pathlib.Path(one.file("begun")).exists, "it runs")
    one.worker.process.send_signal(signal.SIGTERM)
    fake.not_begun(*waiting)
    assert all(report["lease"] != running for report in fake.reports)
    # A claim that is answered while it stops, too.
    pathlib.Path(one.file("go")).write_text("")
    assert fake.report(running)["output"] == "done"
    assert one.worker.process.wait(10) == 0


def test_jobs_of_an_answer_that_was_on_its_way_are_returned(fake: FakeWork, start: Any) -> None:
    """The connection was cut before it was read, and its jobs waited for the end of their leases."""
    one = start()
    leases = fake.give(("noop", {}), ("noop", {}), parting=True)
    assert one.worker.stop() == 0
    fake.not_begun(*leases)


def test_a_job_that_goes_on_after_its_timeout_has_its_process_replaced(fake: FakeWork, start: Any) -> None:
    """It kept its place, and after sixteen of them the worker looked healthy and took nothing."""
    one = start("--concurrency", "2", "--lease", "5s", "--grace", "1s")
    [other] = fake.give(("until_file", {"begun": one.file("begun2"), "file": one.file("go")}))
    [hung] = fake.give(("hangs", {"file": one.file("begun")}), timeout_ms=100)
    until(lambda: all(pathlib.Path(one.file(name)).exists() for name in ("begun", "begun2")), "both run")
    fake.lost[hung] = "timed_out"
    one.worker.prints(
        f"a job of workflow {hung[:8]} goes on 5 s after its timeout. Another process takes its place", 15
    )
    [next_one] = fake.give(("noop", {}))
    assert fake.report(next_one)["outcome"] == "succeeded"
    assert one.healthz() == "1 of 1 processes run jobs; 1 more with a job that goes on after its timeout\n"
    # A job that ran in the same process has all the time that it needs. With its end, the old process ends.
    time.sleep(5)
    pathlib.Path(one.file("go")).write_text("")
    assert fake.report(other)["output"] == "done"
    until(lambda: one.healthz() == "1 of 1 processes run jobs\n", "the old one has ended", 10)
    assert len(one.worker.children()) == 1
    assert one.worker.stop() == 0


@pytest.mark.parametrize("job", [("holds", {"seconds": 60}), ("ablocks", {})])
def test_a_job_that_holds_up_all_others_is_ended_after_the_grace(fake: FakeWork, start: Any, job: Any) -> None:
    one = start("--lease", "5s", "--grace", "1s")
    other, hung = fake.give(("anap", {"seconds": 60}), job, timeout_ms=100_000)
    until(lambda: any(hung in body["leases"] for body in fake.extends), "it has run for a while")
    fake.lost[hung] = "timed_out"
    one.worker.prints(f"a job of workflow {hung[:8]} goes on", 15)
    assert fake.report(other) == {"lease": other, "outcome": "given_back"}
    [next_one] = fake.give(("anoop", {}))
    assert fake.report(next_one)["outcome"] == "succeeded"
    assert one.worker.stop() == 0


def test_a_job_that_extends_its_lease_is_not_overtaken(fake: FakeWork, start: Any) -> None:
    """The parent read the table before, and its own extension came later and was shorter."""
    one = start("--lease", "5s")
    [lease, lost] = fake.give(("extends_now", {}), ("extends_now", {}))
    fake.lost[lost] = "cancelled"
    assert fake.report(lease)["output"] == "extended"
    assert [body["lease"] for body in fake.extends if body["leases"] == [lease]] == ["10m"]
    one.worker.prints("the lease is over (cancelled)")
    assert one.worker.stop() == 0


def test_all_calls_have_the_uptime_of_the_worker(fake: FakeWork, start: Any) -> None:
    """A drain is for those that had started before it, and a new process for jobs is no new worker."""
    one = start("--concurrency", "1", "--lease", "5s")
    # The lease is extended after a third of it, so the nap is well longer than that.
    for job in (("nap", {"seconds": 3}), ("exits", {}), ("noop", {})):
        fake.report(fake.give(job)[0])
    claims = [seconds(claim["uptime"]) for claim in fake.claims]
    assert claims == sorted(claims)
    assert claims[-1] > claims[0] + 2
    assert all(seconds(body["uptime"]) >= claims[0] for body in fake.extends)
    assert all(re.fullmatch("/v1/workers/[^/]+/events[?]uptime=[0-9]+ms", path) for path in fake.streams)
    assert fake.extends
    assert fake.streams
    assert one.worker.stop() == 0
