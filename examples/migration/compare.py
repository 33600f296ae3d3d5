#!/usr/bin/env python3
"""Compares what two rate limit services have counted for each limit, since this program was started.

    compare.py OLD NEW [SECONDS]

OLD and NEW are addresses of their metrics, such as http://localhost:9090/metrics. Both must get the same calls (docs/from-ratelimit.md).
Waits SECONDS (default 60), prints a line for each limit, and ends with 1 when a share of the hits over a limit differs by more than 1 %, or
with 2 when there is nothing to compare: a page cannot be read, or one of the two has counted nothing.

The reference shows what it counted up to 10 s later (STATS_FLUSH_INTERVAL), so OLD is read when it changes, and NEW then. With 0 SECONDS, both are
read at once. A limit that NEW counts since a shorter time than OLD, such as one of this day, differs until its next window begins.
"""

import http.client
import re
import sys
import time
import urllib.request

SAMPLE = re.compile(r'^ratelimit_service_rate_limit_(total_hits|over_limit)\{(.*)\} (\S+)')
# A little more than the reference's interval.
FLUSH = 12
LABEL = re.compile(r'(domain|key1|key2)="((?:[^"\\]|\\.)*)"')


class Unread(Exception):
    """There is nothing to compare."""


def page(address):
    """Total hits and hits over the limit, by limit."""
    try:
        with urllib.request.urlopen(address, timeout=10) as answer:
            text = answer.read().decode()
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise Unread(f"cannot read {address}: {getattr(error, 'reason', error)}") from error
    counts = {}
    for line in text.splitlines():
        if found := SAMPLE.match(line):
            which, labels, value = found.groups()
            limit = ".".join(value for _, value in LABEL.findall(labels))
            counts.setdefault(limit, {})[which] = float(value)
    return counts


def settled(address):
    """The page as soon as it changes, or after a flush without calls."""
    first, end = page(address), time.monotonic() + FLUSH
    while True:
        time.sleep(0.2)
        now = page(address)
        if now != first or time.monotonic() > end:
            return now


def grown(before, after):
    def number(counts, limit, which):
        return counts.get(limit, {}).get(which, 0)

    return {
        limit: tuple(int(number(after, limit, which) - number(before, limit, which)) for which in ("total_hits", "over_limit"))
        for limit in after
    }


def main(old, new, seconds=60.0):
    read = settled if seconds else page
    before = read(old), page(new)
    time.sleep(seconds)
    counts = grown(before[0], read(old)), grown(before[1], page(new))
    for address, limits in zip((old, new), counts):
        if not any(hits for hits, _ in limits.values()):
            raise Unread(f"{address} has counted no hits in {seconds:g} s: were there calls, and did it get them?")
    differs = False
    print(f"{'limit':40} {'hits old':>10} {'new':>10} {'over old':>10} {'new':>10}")
    for limit in sorted(set(counts[0]) | set(counts[1])):
        (hits_old, over_old), (hits_new, over_new) = (each.get(limit, (0, 0)) for each in counts)
        if hits_old == hits_new == 0:
            continue
        share = [over / hits if hits else 0 for hits, over in ((hits_old, over_old), (hits_new, over_new))]
        unlike = abs(share[0] - share[1]) > 0.01
        differs |= unlike
        print(f"{limit:40} {hits_old:>10} {hits_new:>10} {over_old:>10} {over_new:>10}{'  <-- differs' if unlike else ''}")
    return 1 if differs else 0


def run(arguments):
    try:
        old, new, seconds = *arguments[:2], float(arguments[2]) if len(arguments) == 3 else 60.0
        if len(arguments) > 3 or not 0 <= seconds < 1e6:
            raise ValueError
    except ValueError:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        return main(old, new, seconds)
    except Unread as reason:
        print(f"compare.py: {reason}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
