"""The command `tidegate-worker`."""

from __future__ import annotations

import argparse
import os
import socket
import sys

from .._http.address import Address, find_cacert, find_token
from .._span import seconds
from ..errors import TidegateError
from .console import Console
from .joblog import LEVELS
from .settings import Settings
from .supervisor import WRONG, Supervisor

_TEXT = """\
examples:
  tidegate-worker app                          runs the jobs of app.py, of the queues that they name (or: app.py)
  tidegate-worker shop.jobs --processes 4      four processes; each runs 16 jobs at a time
  tidegate-worker app --queues mail --reload   starts again when the program changes

It stops on SIGTERM and Ctrl-C: jobs that have not begun go back to their queues, those that run have --grace to end.
A second signal ends it at once.
Server and token are those of TIDEGATE_SERVER, TIDEGATE_TOKEN and TIDEGATE_CACERT.

exit codes: 0 it was stopped; 1 a second signal; 2 an argument or the program is wrong; 69 the server refuses the worker
"""


def main(arguments: list[str] | None = None) -> int:
    """Runs the worker until it is stopped, and returns its exit code."""
    given = _parser().parse_args(arguments)
    _keep_standard_files()
    console = Console(as_json=given.json)
    try:
        settings = _settings(given)
        supervisor = Supervisor(settings, console, reload=given.reload)
        if given.health is not None:
            port = supervisor.serve(given.health_host, given.health)
            console.log(f"health and metrics on http://{given.health_host}:{port}/healthz and /metrics")
    except TidegateError as error:
        console.fail(str(error))
        return WRONG
    except OSError as error:
        console.fail(f"--health {given.health}: {error.strerror}")
        return WRONG
    try:
        return supervisor.run()
    finally:
        console.close()


def _keep_standard_files() -> None:
    """Opens those of the files 0 to 2 that are closed: another one with such a number would get what jobs print."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            # The lowest free number is taken.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)


def _settings(given: argparse.Namespace) -> Settings:
    address = Address.find(given.server)
    token = find_token(None)
    # A token that cannot be sent is noticed here.
    address.head(token)
    lease = seconds(_span(given.lease))
    if not 5 <= lease <= 3600:
        raise TidegateError(f"--lease {given.lease}: expected 5s to 1h")
    name = given.name or f"{socket.gethostname()}-{os.getpid()}"
    if not 1 <= len(name.encode()) <= 200:
        raise TidegateError("--name: expected 1 to 200 bytes")
    return Settings(
        target=given.target.removesuffix(".py") if "/" not in given.target else given.target,
        name=name,
        server=address.url,
        token=token,
        cacert=find_cacert(given.cacert),
        queues=tuple(dict.fromkeys(queue.strip() for queue in given.queues.split(",") if queue.strip())),
        concurrency=given.concurrency,
        processes=given.processes,
        lease=lease,
        grace=seconds(_span(given.grace)),
        log_jobs=given.log_jobs,
        log_level=given.log_level,
        as_json=given.json,
    )


def _span(text: str) -> str | float:
    """A number without a unit is seconds."""
    try:
        return float(text)
    except ValueError:
        return text


def _from_1(most: int) -> type[int]:
    class Number(int):
        def __new__(cls, text: str) -> Number:
            number = int(text)
            if not 1 <= number <= most:
                raise argparse.ArgumentTypeError(f"expected a number from 1 to {most}")
            return int.__new__(cls, number)

    Number.__name__ = "number"
    return Number


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tidegate-worker",
        description="Runs the jobs of a program.",
        epilog=_TEXT,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("target", metavar="MODULE[:NAME]", help="where the jobs are: a module, or a name in it")
    add("--queues", default="", metavar="A,B", help="the queues to take jobs from (default: those that the jobs name)")
    add("--concurrency", type=_from_1(1000), default=16, metavar="N", help="jobs of a process at a time (default: 16)")
    add("--processes", type=_from_1(256), default=1, metavar="N", help="processes that run jobs (default: 1)")
    add(
        "--lease",
        default="30s",
        metavar="SPAN",
        help="after this time without a sign of the worker, others get its jobs (default: 30s)",
    )
    add(
        "--grace",
        default="20s",
        metavar="SPAN",
        help="how long the worker takes to stop; jobs that run 2 s before its end go back (default: 20s)",
    )
    add("--name", metavar="NAME", help="what the server calls the worker (default: HOST-PID)")
    add("--server", metavar="URL", help="the server (default: TIDEGATE_SERVER, or http://127.0.0.1:7070)")
    add("--cacert", metavar="FILE", help="certificate authorities to trust (default: TIDEGATE_CACERT)")
    add("--reload", action="store_true", help="start the processes again when a file of the program changes")
    add("--json", action="store_true", help="write one JSON object a line")
    add("--health", type=int, metavar="PORT", help="serve /healthz and /metrics on this port (0: a free one)")
    add("--health-host", default="127.0.0.1", metavar="HOST", help="the address for --health (default: 127.0.0.1)")
    add(
        "--log-level",
        choices=[*LEVELS, "off"],
        default="info",
        help="what jobs log with `logging` is shown from this level on, unless the program configures it "
        "(default: info)",
    )
    add(
        "--log-jobs",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="keep what jobs log with `logging`, from INFO, in their logs (default: yes)",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
